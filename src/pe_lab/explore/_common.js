// The frame of an explorable: a figure, controls bound to its settings, a readout.

/** An HTML element. */
export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  const space = "http://www.w3.org/2000/svg";
  return fill(document.createElementNS(space, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/**
 * Put an explorable into `el` and keep it drawn.
 *
 * `build(frame)` adds controls and returns `draw(width)`. Drawing fills `frame.figure`
 * for a width in CSS pixels and returns the lines of the readout. It is called again
 * when a setting, the width or the theme changes.
 */
export function explorable({ model, el }, build) {
  const frame = {
    model,
    root: html("div", {
      class: "pe-explore",
      role: "figure",
      "aria-label": model.get("about"),
    }),
    figure: html("div", { class: "pe-figure" }),
    controls: html("div", { class: "pe-controls" }),
    refresh: [],
    get: (name) => model.get(name),
    set(name, value) {
      model.set(name, value);
      model.save_changes();
    },
  };
  const readout = html("output", { "aria-live": "polite" });
  frame.root.append(frame.figure, frame.controls, readout);
  el.append(frame.root);
  keepKeys(frame.root);
  const draw = build(frame);
  const update = () => {
    const width = frame.figure.clientWidth;
    if (!width) return; // not on the page yet, or folded away: no width, no colours
    frame.refresh.forEach((step) => step());
    write(readout, draw(width));
    frame.root.dataset.peReady = "true";
  };
  update();
  return keepDrawn(frame, update);
}

/** In JupyterLab, let keys work the focused control, not the notebook around it. */
function keepKeys(root) {
  root.addEventListener("focusin", ({ target }) => {
    target.dataset.lmSuppressShortcuts = "true";
  });
}

/** Each line is a text, or a list of texts and elements. */
function write(readout, lines) {
  const spans = lines.map((line) => html("span", {}, ...[line].flat()));
  const text = (elements) => [...elements].map((e) => e.textContent).join("\n");
  if (text(spans) === text(readout.children)) return; // do not announce it twice
  readout.replaceChildren(...spans);
}

/** Call `update` once per frame when something changed; return how to stop. */
function keepDrawn({ model, figure }, update) {
  let waiting = 0;
  const soon = () => {
    if (!waiting) waiting = requestAnimationFrame(() => ((waiting = 0), update()));
  };
  const width = new ResizeObserver(soon);
  width.observe(figure);
  const theme = new MutationObserver(soon);
  const attributeFilter = ["data-theme", "data-jp-theme-light"];
  for (const element of [document.documentElement, document.body]) {
    theme.observe(element, { attributes: true, attributeFilter });
  }
  model.on("change", soon);
  return () => {
    cancelAnimationFrame(waiting);
    width.disconnect();
    theme.disconnect();
    model.off("change", soon);
  };
}

/**
 * A slider for a setting. It walks through `stops` where even steps would not serve,
 * and ends at `high()` where that depends on another setting.
 */
export function slider(frame, name, { label, format = number, stops, high }) {
  const [low, top, step = "any"] = frame.model.get("bounds")[name];
  const walk = stops?.filter((value) => value >= low && value <= top);
  const range = walk ? [0, walk.length - 1, 1] : [low, top, step];
  const input = html("input", { type: "range", id: newId() });
  [input.min, input.max, input.step] = range;
  const value = html("span", { class: "pe-value", "aria-hidden": "true" });
  input.addEventListener("input", () =>
    frame.set(name, walk ? walk[+input.value] : +input.value),
  );
  frame.refresh.push(() => {
    const now = frame.get(name);
    if (high) input.max = high();
    input.value = walk ? nearest(walk, now) : now;
    value.textContent = format(now);
    input.setAttribute("aria-valuetext", format(now));
  });
  control(frame, input, label, value, input);
}

/** A list to choose a setting from: `options` are [value, text] pairs. */
export function choice(frame, name, { label, options }) {
  const entries = options.map(([, text], i) => html("option", { value: i }, text));
  const input = html("select", { id: newId() }, ...entries);
  input.addEventListener("change", () => frame.set(name, options[input.value][0]));
  frame.refresh.push(() => {
    input.value = options.findIndex(([value]) => value === frame.get(name));
  });
  control(frame, input, label, input);
}

/** A box to tick for a setting that is on or off. */
export function toggle(frame, name, { label }) {
  const input = html("input", { type: "checkbox", id: newId() });
  input.addEventListener("change", () => frame.set(name, input.checked));
  frame.refresh.push(() => (input.checked = frame.get(name)));
  const row = html("div", { class: "pe-control pe-toggle" });
  row.append(input, html("label", { for: input.id }, label));
  frame.controls.append(row);
}

/** A row of buttons: [text, action] pairs. Returns the buttons. */
export function buttons(frame, actions) {
  const row = html("div", { class: "pe-control pe-buttons" });
  for (const [text, action] of actions) {
    const button = html("button", { type: "button" }, text);
    button.addEventListener("click", action);
    row.append(button);
  }
  frame.controls.append(row);
  return [...row.children];
}

function control(frame, input, label, ...parts) {
  const name = html("label", { for: input.id }, label);
  frame.controls.append(html("div", { class: "pe-control" }, name, ...parts));
}

function newId() {
  return "pe-" + Math.random().toString(36).slice(2);
}

/** Index of the stop closest to a value, in ratio. */
export function nearest(stops, value) {
  const distances = stops.map((stop) => Math.abs(Math.log(stop / value)));
  return distances.indexOf(Math.min(...distances));
}

/** Whole numbers from low to high, about four to an octave: 4, 5, 6, 7 times 2^k. */
export function octaves(low, high, step = 1) {
  const stops = new Set();
  for (let power = 1 / 4; power <= high; power *= 2) {
    for (const lead of [4, 5, 6, 7]) stops.add(lead * power);
  }
  return [...stops].filter((n) => n >= low && n <= high && n % step === 0);
}

/** Round numbers from low to high, six to a decade: 1, 1.5, 2, 3, 5, 7 times 10^k. */
export function decades(low, high) {
  const stops = [];
  for (let power = 1; power <= high; power *= 10) {
    for (const lead of [1, 1.5, 2, 3, 5, 7]) stops.push(lead * power);
  }
  return stops.filter((value) => value >= low && value <= high);
}

/** 12345.5 → "12 345.5", with a true minus sign; `digits` after the point if given. */
export function number(value, digits) {
  const text = digits === undefined ? String(value) : value.toFixed(digits);
  const [whole, fraction] = text.replace(/^-(?=[0.]*$)/, "").split(".");
  const spaced = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f").replace("-", "−");
  return fraction === undefined ? spaced : `${spaced}.${fraction}`;
}

/**
 * Report where an element is pressed, tapped or dragged over (or, with `hover`, moved
 * over by a mouse), in its own CSS pixels.
 */
export function pointing(element, at, hover = false) {
  const report = (event) => {
    const box = element.getBoundingClientRect();
    at(event.clientX - box.left, event.clientY - box.top);
  };
  element.style.touchAction = "pan-y"; // up and down still scrolls the page
  element.addEventListener("pointerdown", report);
  element.addEventListener("pointermove", (event) => {
    if (event.buttons || (hover && event.pointerType === "mouse")) report(event);
  });
}

/** A canvas of so many CSS pixels, sharp on any screen, and its drawing context. */
export function sharpCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** 0.000103663 → "1.0366·10⁻⁴": so many digits that count. */
export function significant(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= -3 && size < 7) {
    return number(Number(value.toPrecision(digits)));
  }
  const [lead, power] = value.toExponential(digits - 1).split("e");
  const raised = [...String(+power)].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
  return `${lead.replace("-", "−")}·10${raised.join("")}`;
}

/** The diverging colour map of the theme in force, as [red, green, blue] stops. */
export function colourMap(root) {
  const stops = getComputedStyle(root).getPropertyValue("--_map").trim().split(/\s+/);
  return stops.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
}

/** Colour of a value in [−1, 1]. */
export function heat(map, value) {
  const at = ((Math.min(1, Math.max(-1, value)) + 1) / 2) * (map.length - 1);
  const low = Math.min(Math.floor(at), map.length - 2);
  return map[low].map((part, i) => part + (at - low) * (map[low + 1][i] - part));
}

/** [red, green, blue] as CSS writes it. */
export function css(rgb) {
  return `rgb(${rgb.map(Math.round).join(" ")})`;
}

/** Black or white, whichever reads better on a colour (WCAG relative luminance). */
export function readableOn(rgb) {
  const linear = rgb.map((part) => (part / 255) ** 2.2);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.18 ? "#000000" : "#ffffff";
}
