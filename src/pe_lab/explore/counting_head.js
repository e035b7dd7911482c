// Chapter 13: equal weights over what is seen, and the place read back from them.
import { choice, explorable, number, octaves, significant, slider } from "./_common.js";
import { pointing, svg, toggle } from "./_common.js";

const BITS = { float32: [24, -126], float16: [11, -14], bfloat16: [8, -126] };

/** A positive number rounded to the nearest of a format, ties to even. */
export function rounded(value, dtype) {
  if (dtype === "float64" || value === 0) return value;
  const [bits, least] = BITS[dtype];
  const power = Math.max(least, Math.floor(Math.log2(value)));
  const unit = 2 ** (power - bits + 1); // from one number of the format to the next
  const [low, rest] = [Math.floor(value / unit), (value / unit) % 1];
  const up = rest > 0.5 || (rest === 0.5 && low % 2 === 1);
  return (low + up) * unit;
}

/** Marked tokens seen over tokens seen, at every place, as the format keeps it. */
export function outputs({ length, start, marked, causal, dtype }) {
  return Array.from({ length }, (_, m) => {
    const seen = causal ? m + 1 : length;
    const marks = Math.max(0, Math.min(start + marked, seen) - start);
    return rounded(marks / seen, dtype);
  });
}

/** The place that has this output if all marks are seen; null for no mark. */
export function readBack(output, marked) {
  return output === 0 ? null : marked / output - 1;
}

/** The first place that has the output of the next one, or null. */
export function firstMerge(values) {
  const at = values.findIndex((value, m) => value > 0 && value === values[m + 1]);
  return at < 0 ? null : at;
}

const MARGIN = { left: 44, right: 12 };
const UPPER = { top: 22, height: 84 };
const LOWER = { top: 154, height: 190 };

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    let across = null;
    pointing(frame.figure, (x) => {
      if (across) frame.set("place", across.placeAt(x));
    });
    return (width) => {
      const now = read(frame);
      const values = outputs(now);
      across = scale(width, now.length);
      const height = LOWER.top + LOWER.height + 36;
      const node = svg("svg", { width, height, "aria-hidden": "true" });
      node.append(drawWeights(across, now), drawReadings(across, now, values));
      frame.figure.replaceChildren(node);
      return readout(now, values);
    };
  });
}

/** The settings, with places that lie in the sequence. */
function read(frame) {
  const names = ["length", "place", "start", "marked", "causal", "dtype"];
  const now = Object.fromEntries(names.map((name) => [name, frame.get(name)]));
  now.place = Math.min(now.place, now.length - 1);
  now.start = Math.min(now.start, now.length - 1);
  return now;
}

function addControls(frame) {
  const last = () => frame.get("length") - 1;
  slider(frame, "length", { label: "tokens", stops: octaves(4, 4096) });
  slider(frame, "place", { label: "place that looks", high: last });
  slider(frame, "start", { label: "first marked token", high: last });
  slider(frame, "marked", { label: "marked tokens" });
  choice(frame, "dtype", {
    label: "output kept in",
    options: Object.keys({ float64: 0, ...BITS }).map((name) => [name, name]),
  });
  toggle(frame, "causal", { label: "causal mask" });
}

function scale(width, length) {
  const room = width - MARGIN.left - MARGIN.right;
  const step = room / length;
  const x = (place) => MARGIN.left + place * step;
  const placeAt = (px) =>
    Math.max(0, Math.min(length - 1, Math.floor((px - MARGIN.left) / step)));
  return { room, step, x, placeAt };
}

const seenBy = ({ place, length, causal }) => (causal ? place + 1 : length);

/** A bar for each token that is seen; one area where bars would be too thin. */
function drawWeights({ step, x, room }, now) {
  const { start, marked, place } = now;
  const seen = seenBy(now);
  const bottom = UPPER.top + UPPER.height;
  const tall = Math.max(1, UPPER.height / seen);
  const group = svg("g", {}, svg("text", { x: 0, y: 12 }, `weights at place ${number(place)}`));
  const gap = step > 5 ? 2 : 0;
  const bar = (from, to, kind, rise = tall) =>
    svg("rect", {
      class: kind,
      x: x(from) + gap / 2,
      y: bottom - rise,
      width: Math.max(1, (to - from) * step - gap),
      height: rise,
    });
  if (gap) for (let n = 0; n < seen; n++) group.append(bar(n, n + 1, "pe-content"));
  else group.append(bar(0, seen, "pe-content"));
  const end = Math.min(start + marked, seen);
  for (let n = start; n < end; n++) group.append(bar(n, n + 1, "pe-position"));
  const ground = { x1: MARGIN.left, x2: MARGIN.left + room, y1: bottom, y2: bottom };
  group.append(svg("line", { class: "pe-axis", ...ground }));
  group.append(svg("text", { x: MARGIN.left - 6, y: UPPER.top + 10, "text-anchor": "end" }, "1"));
  const word = start < seen ? "" : ", no mark seen";
  const label = { class: "pe-ink", x: MARGIN.left + room, y: 12, "text-anchor": "end" };
  group.append(svg("text", label, `each 1/${number(seen)}${word}`));
  return group;
}

/** The place read back against the place: dots, or a line where they would touch. */
function drawReadings({ step, x, room }, now, values) {
  const { length, marked, place } = now;
  const bottom = LOWER.top + LOWER.height;
  const most = length * 1.06;
  const y = (reading) => bottom - (Math.min(reading, most) / most) * LOWER.height;
  const group = svg("g", {}, svg("text", { x: 0, y: LOWER.top - 14 }, "place read back"));
  for (const tick of [0, length - 1]) {
    const line = { x1: MARGIN.left, x2: MARGIN.left + room, y1: y(tick), y2: y(tick) };
    group.append(svg("line", { class: tick ? "pe-grid" : "pe-axis", ...line }));
    const beside = { x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" };
    group.append(svg("text", beside, number(tick)));
    const below = { x: x(tick + 0.5), y: bottom + 16, "text-anchor": "middle" };
    group.append(svg("text", below, number(tick)));
  }
  const title = { x: MARGIN.left + room / 2, y: bottom + 30, "text-anchor": "middle" };
  group.append(svg("text", title, "place"));
  for (const [m, value] of values.entries()) {
    const reading = readBack(value, marked);
    if (reading === null) continue;
    const merged = [values[m - 1], values[m + 1]].includes(value);
    const [kind, r] = [merged ? "pe-accent" : "pe-position", step > 5 ? 3 : 1.2];
    group.append(svg("circle", { class: kind, cx: x(m + 0.5), cy: y(reading), r }));
  }
  const line = { x1: x(place + 0.5), x2: x(place + 0.5), y1: LOWER.top, y2: bottom };
  group.append(svg("line", { class: "pe-accent", "stroke-dasharray": "2 3", ...line }));
  return group;
}

function readout(now, values) {
  const { place, marked, dtype, causal } = now;
  const value = values[place];
  const reading = readBack(value, marked);
  const first = `Place ${number(place)} sees ${number(seenBy(now))} tokens; output ${significant(value, 5)}`;
  const told = reading === null ? "no mark, no place" : `read back as ${significant(reading, 5)}`;
  const kinds = number(new Set(values).size);
  const lines = [`${first}: ${told}.`, `Outputs that differ: ${kinds} of ${number(values.length)}.`];
  const merge = firstMerge(values);
  if (!causal) lines.push("Without the mask every place has the same output.");
  else if (merge !== null)
    lines.push(`First neighbours with one output in ${dtype}: ${number(merge)} and ${number(merge + 1)}.`);
  return lines;
}

export default { render };
