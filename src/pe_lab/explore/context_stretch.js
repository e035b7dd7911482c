// Chapter 15: by how much each rule of context extension slows each pair down.
import { invFreq } from "./_maths.js";
import { buttons, choice, decades, explorable, number, octaves } from "./_common.js";
import { significant, slider, svg } from "./_common.js";

const TURN = 2 * Math.PI;
const clamp = (value) => Math.min(1, Math.max(0, value));

/** ω/s for every pair. */
export function linear(omegas, { factor }) {
  return omegas.map((omega) => omega / factor);
}

/** ω_i·s^(−i/(n−1)): the fastest is kept, the slowest divided by s. */
export function ntk(omegas, { factor }) {
  const last = omegas.length - 1;
  return omegas.map((omega, i) => omega * factor ** (-i / last));
}

/** NTK-aware with the factor s·L/L₀ − (s − 1), at least 1. */
export function dynamic(omegas, { factor, length, trained }) {
  const grown = (factor * length) / trained - (factor - 1);
  return ntk(omegas, { factor: Math.max(1, grown) });
}

/** A share γ kept, the rest divided: γ rises from `slow` to `fast` turns. */
export function byParts(omegas, { factor, trained, slow = 1, fast = 32 }) {
  return omegas.map((omega) => {
    const kept = clamp(((omega * trained) / TURN - slow) / (fast - slow));
    return (omega / factor) * (1 - kept) + omega * kept;
  });
}

/** By parts, from one to four turns. */
export function llama3(omegas, settings) {
  return byParts(omegas, { ...settings, fast: 4 });
}

/** By parts, with a ramp that is straight in the index of the pair. */
export function yarn(omegas, { factor, trained, slow = 1, fast = 32 }) {
  const pairs = omegas.length;
  const fall = Math.log(omegas[0] / omegas[pairs - 1]) / (pairs - 1);
  const index = (turns) => Math.log((omegas[0] * trained) / (TURN * turns)) / fall;
  const low = Math.max(0, Math.floor(index(fast)));
  let high = Math.min(2 * pairs - 1, Math.ceil(index(slow)));
  if (high < low) return linear(omegas, { factor });
  if (high === low) high += 0.001;
  return omegas.map((omega, i) => {
    const divided = clamp((i - low) / (high - low));
    return (omega / factor) * divided + omega * (1 - divided);
  });
}

/** ω_i divided by a searched factor of its own. */
export function longrope(omegas, { factors }) {
  return omegas.map((omega, i) => omega / factors[i]);
}

/** The ladder of another base: b^(−2i/d) becomes b'^(−2i/d). */
export function rebase(omegas, { base, newBase }) {
  const dim = 2 * omegas.length;
  return omegas.map((omega, i) => omega * (newBase / base) ** ((-2 * i) / dim));
}

// The long list of Phi-3-mini-128k-instruct, from 4096 to 131072 tokens.
export const PHI3 = [
  1.07, 1.12, 1.15, 1.42, 1.57, 1.8, 2.13, 2.13, 3.01, 5.91, 6.95, 9.07, 9.93, 10.71,
  11.13, 14.61, 15.41, 19.81, 37.28, 38.28, 38.6, 40.12, 46.2, 50.94, 53.66, 54.94,
  56.9, 57.29, 59.99, 60.87, 60.89, 61.72, 62.92, 62.96, 63.42, 63.82, 63.84, 63.9,
  63.94, 64.07, 64.11, 64.12, 64.15, 64.19, 64.24, 64.57, 64.69, 64.76,
];

const RULES = {
  linear, ntk, dynamic, "by-parts": byParts, llama3, yarn,
  longrope: (omegas) => longrope(omegas, { factors: PHI3 }),
  "base 5e5": (omegas, s) => rebase(omegas, { ...s, newBase: 5e5 }),
  "base 1e6": (omegas, s) => rebase(omegas, { ...s, newBase: 1e6 }),
}; // prettier-ignore

/** ω/ω' of each pair, its turns in the trained length, and what becomes of it. */
export function family({ method, factor, trained, reach, base, headDim }) {
  const length = Math.round(reach * trained);
  const omegas = invFreq(headDim, base);
  const scaled = RULES[method](omegas, { factor, trained, length, base });
  const slowed = omegas.map((omega, i) => omega / scaled[i]);
  const turns = omegas.map((omega) => (omega * trained) / TURN);
  const grown = (length / trained) * (1 - 1e-9);
  const unseen = turns.map((r, i) => r < 1 && grown > slowed[i]);
  const top = method === "dynamic" ? slowed.at(-1) : factor;
  const count = (test) => slowed.filter(test).length;
  const kept = count((slow) => slow < 1 + 1e-9);
  const divided = top > 1 ? count((slow) => slow > top * (1 - 1e-9)) : 0;
  const lost = unseen.filter(Boolean).length;
  return { slowed, turns, unseen, length, kept, divided, lost, top };
}

const NAMES = {
  linear: "linear (PI)", ntk: "NTK-aware", dynamic: "dynamic NTK", yarn: "YaRN",
  "by-parts": "NTK by parts", llama3: "Llama 3", longrope: "LongRoPE, Phi-3's list",
  "base 5e5": "base 500 000", "base 1e6": "base 1 000 000",
}; // prettier-ignore
const SETTINGS = ["head_dim", "base", "trained", "factor", "reach", "method"];
const CASES = [
  ["Llama 2, ×16", [128, 1e4, 4096, 16, 16, "yarn"]],
  ["Llama 3.1", [128, 5e5, 8192, 8, 16, "llama3"]],
  ["Phi-3", [96, 1e4, 4096, 32, 32, "longrope"]],
  ["our small model", [16, 1e4, 32, 4, 4, "ntk"]],
];

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    return (width) => {
      let [headDim, base, trained, factor, reach, method] = SETTINGS.map(frame.get);
      if (method === "longrope") [headDim, base, trained, factor] = CASES[2][1];
      const found = family({ method, factor, trained, reach, base, headDim });
      frame.figure.replaceChildren(draw(found, width));
      return readout(found, { method, factor, trained });
    };
  });
}

function addControls(frame) {
  const set = (values) => SETTINGS.forEach((name, i) => frame.set(name, values[i]));
  buttons(frame, CASES.map(([name, values]) => [name, () => set(values)]));
  const options = frame.get("bounds").method.map((word) => [word, NAMES[word]]);
  choice(frame, "method", { label: "rule", options });
  const times = (value) => `× ${significant(value, 3)}`;
  const stops = octaves(1, 64);
  slider(frame, "factor", { label: "factor s", stops, format: times });
  slider(frame, "trained", { label: "trained length", stops: octaves(16, 131072) });
  slider(frame, "reach", { label: "length of the text", stops, format: times });
  slider(frame, "base", { label: "base", stops: decades(10, 1e6) });
  slider(frame, "head_dim", { label: "head_dim", stops: octaves(8, 256, 2) });
}

function draw({ slowed, turns, unseen, top }, width) {
  const [height, left, right, up, down] = [230, 40, 14, 26, 38];
  const most = Math.max(2, top, ...slowed);
  const least = Math.min(1, ...slowed);
  const scale = (value) => Math.log(value / least) / Math.log(most / least);
  const y = (value) => height - down - scale(value) * (height - up - down);
  const step = (width - left - right) / slowed.length;
  const x = (i) => left + (i + 0.5) * step;
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  const level = (value, name, kind) => {
    const line = { x1: left, x2: width - right, y1: y(value), y2: y(value) };
    node.append(svg("line", { class: kind, ...line }));
    const place = { x: left - 6, y: y(value) + 4, "text-anchor": "end" };
    node.append(svg("text", place, name));
  };
  level(1, "1", "pe-axis");
  if (top > 1.05) level(top, significant(top, 3), "pe-grid");
  const seen = turns.filter((r) => r >= 1).length;
  const edge = left + seen * step;
  const line = { x1: edge, x2: edge, y1: up - 8, y2: height - down };
  node.append(svg("line", { class: "pe-accent pe-stroke pe-quiet", ...line }));
  const end = edge > width / 2;
  const place = { x: edge + (end ? -6 : 6), y: up - 12 };
  if (end) place["text-anchor"] = "end";
  const words = "one turn within the trained length";
  node.append(svg("text", place, end ? `${words} ▸` : `◂ ${words}`));
  for (const [i, slow] of slowed.entries()) {
    const dot = { cx: x(i), cy: y(slow), r: Math.min(5, Math.max(2, step / 3)) };
    node.append(svg("circle", { class: unseen[i] ? "pe-ring" : "pe-position", ...dot }));
  }
  const title = { x: left, y: height - 6 };
  node.append(svg("text", title, `slow-down ω/ω′ of each pair, fastest at the left`));
  return node;
}

function readout({ slowed, turns, length, kept, divided, lost }, { method, trained }) {
  const pairs = slowed.length;
  const seen = turns.filter((r) => r >= 1).length;
  const share = (count) => `${count} of ${pairs}`;
  return [
    `${NAMES[method]}: ${share(kept)} pairs kept, ${divided} slowed by s or more, ` +
      `${pairs - kept - divided} in between.`,
    `${share(seen)} turn fully within ${number(trained)} tokens. In a text of ` +
      `${number(length)}, ${lost} ${lost === 1 ? "pair meets" : "pairs meet"} angles ` +
      `never seen in training${lost ? " (rings)" : ""}.`,
  ];
}

export default { render };
