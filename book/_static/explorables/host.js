// Shows explorables on a page without a kernel.
//
// A saved notebook carries the state of its widgets, and MyST-NB puts it in the page:
// one script tag with every model's state (the text of its ES module included), and one
// tag per output that names a model. This host reads both, gives each module a model
// that lives in the page, and calls its `render`, as JupyterLab does with a kernel.
//
// It is a classic script, loaded with `defer`: a module script would not run from
// file://. Models that are not anywidgets need a kernel and are left alone.
(() => {
  "use strict";

  const MIME = "application/vnd.jupyter.widget-";

  /** A model in step with nothing but its views. */
  class Model {
    constructor(state) {
      this.state = { ...state };
      this.listeners = new Map();
    }

    get(name) {
      return this.state[name];
    }

    set(name, value) {
      if (this.state[name] === value) return;
      this.state[name] = value;
      this.emit(`change:${name}`, value);
      this.emit("change");
    }

    on(event, listener) {
      if (!this.listeners.has(event)) this.listeners.set(event, new Set());
      this.listeners.get(event).add(listener);
    }

    off(event, listener) {
      this.listeners.get(event)?.delete(listener);
    }

    emit(event, ...values) {
      for (const listener of this.listeners.get(event) ?? []) listener(...values);
    }

    save_changes() {} // there is no kernel to tell
  }

  const modules = new Map();

  /** Import the text of an ES module, once. */
  function importText(text) {
    if (!modules.has(text)) {
      const blob = new Blob([text], { type: "text/javascript" });
      modules.set(text, import(URL.createObjectURL(blob)));
    }
    return modules.get(text);
  }

  function addStyle(text) {
    const styles = [...document.querySelectorAll("style[data-pe-explore]")];
    if (styles.some((style) => style.textContent === text)) return;
    const style = document.createElement("style");
    style.dataset.peExplore = "";
    style.textContent = text;
    document.head.append(style);
  }

  async function show(model, el) {
    try {
      addStyle(model.get("_css"));
      const { default: widget } = await importText(model.get("_esm"));
      widget.render({ model, el });
    } catch (error) {
      console.error(error);
      el.textContent = `This interactive figure could not start. ${model.get("about")}`;
    }
  }

  const read = (tag) => JSON.parse(tag.textContent);
  const find = (kind) => document.querySelectorAll(`script[type="${MIME}${kind}+json"]`);

  const models = new Map();
  for (const tag of find("state")) {
    for (const [id, { model_module, state }] of Object.entries(read(tag).state)) {
      if (model_module === "anywidget") models.set(id, new Model(state));
    }
  }
  for (const tag of find("view")) {
    const model = models.get(read(tag).model_id);
    if (!model) continue;
    const el = document.createElement("div");
    tag.after(el);
    show(model, el);
  }
})();
