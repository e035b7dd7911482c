// Chapter 09: the loss at each position of a text, inside and beyond the trained length.
import { choice, explorable, number, octaves, slider, svg, toggle } from "./_common.js";

export const TRAINED = 32;

const NAMES = {
  none: "no encoding",
  sinusoidal: "sinusoidal",
  learned: "learned table",
  "learned-small": "small learned table",
  rope: "RoPE",
  "rope-base5": "RoPE, base 5",
  alibi: "ALiBi",
  t5: "T5 bias",
  shaw: "Shaw",
};
const WAYS = {
  plain: "",
  window: ", sees the last 32",
  clamp: ", clamped",
  wrap: ", wrapped",
  resample: ", resampled",
  interpolate: ", interpolated",
};

/** "rope/window" → "RoPE, sees the last 32". */
export function nameOf(series) {
  const [encoding, way] = series.split("/");
  return NAMES[encoding] + WAYS[way];
}

/** exp of the mean loss at places from … to − 1. */
export function perplexity(losses, from, to) {
  const part = losses.slice(from, to);
  return Math.exp(part.reduce((sum, loss) => sum + loss, 0) / part.length);
}

/** Means over `width` places around each, and over those that exist at the ends. */
export function smoothed(losses, width) {
  const before = Math.floor((width - 1) / 2);
  return losses.map((_, p) => {
    const part = losses.slice(Math.max(0, p - before), p - before + width);
    return part.reduce((sum, loss) => sum + loss, 0) / part.length;
  });
}

const MARGIN = { left: 34, right: 12, top: 26, bottom: 40 };
const LINES = [
  ["first", "pe-position"],
  ["second", "pe-accent"],
];

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    return (width) => {
      const length = frame.get("length");
      const shown = LINES.map(([name, kind]) => {
        const losses = model.get("losses")[frame.get(name)].slice(0, length);
        return { kind, losses, name: nameOf(frame.get(name)) };
      });
      frame.figure.replaceChildren(draw(frame, shown, width));
      return shown.map(readout);
    };
  });
}

function addControls(frame) {
  slider(frame, "length", { label: "length of the text" });
  const format = (w) => (w === 1 ? "1 place" : `${w} places`);
  slider(frame, "smooth", { label: "mean over", stops: octaves(1, 32), format });
  for (const name of ["first", "second"]) {
    const options = frame.get("bounds")[name].map((series) => [series, nameOf(series)]);
    options.sort((a, b) => a[1].localeCompare(b[1], "en"));
    choice(frame, name, { label: `${name} model`, options });
  }
  toggle(frame, "log", { label: "logarithmic positions" });
}

function draw(frame, shown, width) {
  const curves = shown.map(({ losses }) => smoothed(losses, frame.get("smooth")));
  const plot = axes(width, curves, frame.get("length"), frame.get("log"));
  shown.forEach(({ kind, name }, i) => {
    const d = path(curves[i].map((loss, p) => [plot.x(p), plot.y(loss)]));
    const dash = i ? { "stroke-dasharray": "5 3" } : {};
    plot.node.append(svg("path", { class: `pe-stroke ${kind}`, ...dash, d }));
    const row = { x: plot.right, y: MARGIN.top + 2 + 15 * i, "text-anchor": "end" };
    const text = svg("text", { class: `pe-halo pe-strong ${kind}`, ...row }, name);
    plot.node.append(text);
  });
  return plot.node;
}

function axes(width, curves, length, log) {
  const height = Math.round(Math.min(320, Math.max(240, width * 0.48)));
  const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
  const at = log ? (p) => Math.log2(p + 1) / Math.log2(length) : (p) => p / (length - 1);
  const x = (p) => MARGIN.left + at(p) * (right - MARGIN.left);
  const top = Math.ceil(Math.max(...curves.flat()) * 2 + 1.4) / 2; // room for names
  const y = (loss) => bottom - ((loss - 1) / (top - 1)) * (bottom - MARGIN.top);
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  for (let loss = 1; loss <= top; loss++) {
    const line = { x1: MARGIN.left, x2: right, y1: y(loss), y2: y(loss) };
    node.append(svg("line", { class: "pe-grid", ...line }));
    const place = { x: MARGIN.left - 6, y: y(loss) + 4, "text-anchor": "end" };
    node.append(svg("text", place, number(loss)));
  }
  for (const p of ticks(length, log)) {
    const place = { x: x(p), y: bottom + 16, "text-anchor": "middle" };
    node.append(svg("text", place, number(p)));
  }
  markTrained(node, x, bottom, length);
  const title = { x: (MARGIN.left + right) / 2, y: height - 4, "text-anchor": "middle" };
  node.append(svg("text", title, "position"));
  node.append(svg("text", { x: 0, y: 14 }, "loss, nats"));
  return { node, x, y, right };
}

/** Where the trained positions end. */
function markTrained(node, x, bottom, length) {
  const edge = x(Math.min(TRAINED, length) - 0.5);
  const line = { x1: edge, x2: edge, y1: MARGIN.top, y2: bottom };
  node.append(svg("line", { class: "pe-axis", "stroke-dasharray": "2 3", ...line }));
  const room = edge > 150; // for the words on the left of the line
  const place = { x: edge + (room ? -5 : 5), y: 14, "text-anchor": room ? "end" : "start" };
  node.append(svg("text", place, "← trained"));
}

/** Positions with a number below them. */
export function ticks(length, log) {
  if (log) return [0, 1, 3, 7, 15, 31, 63, 127, 255].filter((p) => p < length);
  const step = length > 96 ? 32 : 16;
  return Array.from({ length: length / step }, (_, i) => i * step);
}

function path(points) {
  return "M" + points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join("L");
}

function readout({ name, losses }) {
  const over = (from, to) => number(perplexity(losses, from, to), 2);
  const length = losses.length;
  if (length === TRAINED) return `${name}: perplexity ${over(0, length)}.`;
  const inside = `${over(0, TRAINED)} at the ${TRAINED} trained places`;
  const beyond = `${over(TRAINED, length)} at the others`;
  return `${name}: perplexity ${over(0, length)}; ${inside}, ${beyond}.`;
}

export default { render };
