// Chapter 06: K(Δ)/K(0) against Δ, with ALiBi's straight line on the same axes.
import { invFreq } from "./_maths.js";
import { choice, decades, explorable, number, octaves, slider } from "./_common.js";
import { pointing, svg } from "./_common.js";

/** K(Δ) = Σ_i cos(Δ·ω_i), for every Δ in a list. */
export function kernel(offsets, dModel, base) {
  const omegas = invFreq(dModel, base);
  return offsets.map((offset) =>
    omegas.reduce((sum, omega) => sum + Math.cos(offset * omega), 0),
  );
}

/** The first whole Δ where the curve turns up, and the next where it turns down. */
export function firstTurns(values) {
  const turn = (from, up) => {
    for (let i = from; i + 1 < values.length; i++) {
      if (up ? values[i + 1] > values[i] : values[i + 1] < values[i]) return i;
    }
    return null;
  };
  const minimum = turn(0, true);
  const rebound = minimum === null ? null : turn(minimum, false);
  return { minimum, rebound };
}

/** "1/8" → 0.125; "none" → null. */
export function slope(alibi) {
  return alibi === "none" ? null : 1 / +alibi.slice(2);
}

const MARGIN = { left: 38, right: 14, top: 22, bottom: 40 };

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    let [curve, plot] = [null, null];
    pointing(frame.figure, (x) => {
      const offset = Math.round(plot.offsetAt(x));
      frame.set("offset", Math.min(curve.top, Math.max(0, offset)));
    });
    return (width) => {
      curve = sample(frame, curve);
      plot = axes(width, curve);
      drawLine(frame, plot, curve);
      drawCurve(plot, curve);
      drawTurns(plot, curve);
      drawChosen(frame, plot, curve);
      frame.figure.replaceChildren(plot.node);
      return readout(frame, curve);
    };
  });
}

function addControls(frame) {
  slider(frame, "d_model", {
    label: "width d_model",
    stops: octaves(2, 1024, 2),
    format: (d) => `${d} (${d / 2} ${d === 2 ? "pair" : "pairs"})`,
  });
  slider(frame, "base", { label: "base", stops: decades(10, 1e6) });
  slider(frame, "max_offset", { label: "range of Δ", stops: octaves(8, 2048) });
  slider(frame, "offset", { label: "distance Δ", high: () => frame.get("max_offset") });
  const { alibi } = frame.get("bounds");
  const text = (m) => (m === "none" ? "no line" : `slope m = ${m}`);
  choice(frame, "alibi", {
    label: "ALiBi, 1 − m·Δ",
    options: alibi.map((m) => [m, text(m)]),
  });
}

/** The curve, computed anew only when what it depends on has changed. */
function sample(frame, old) {
  const settings = ["d_model", "base", "max_offset"].map(frame.get);
  const [dModel, base, top] = settings;
  const key = settings.join();
  if (old?.key === key) return old;
  const at = (offsets) => kernel(offsets, dModel, base).map((k) => k / (dModel / 2));
  const whole = at(Array.from({ length: top + 1 }, (_, i) => i));
  const parts = top <= 64 ? 8 : 1; // between whole Δ the curve only guides the eye
  const fine = Array.from({ length: top * parts + 1 }, (_, i) => i / parts);
  const smooth = parts === 1 ? whole : at(fine);
  return { key, top, whole, fine, smooth, turns: firstTurns(whole) };
}

function axes(width, { top, smooth }) {
  const height = Math.round(Math.min(320, Math.max(230, width * 0.48)));
  const floor = Math.min(...smooth) < -0.5 ? -1 : -0.5;
  const right = width - MARGIN.right;
  const bottom = height - MARGIN.bottom;
  const x = (offset) => MARGIN.left + (offset / top) * (right - MARGIN.left);
  const y = (value) =>
    MARGIN.top + ((1 - value) / (1 - floor)) * (bottom - MARGIN.top);
  const offsetAt = (px) => ((px - MARGIN.left) / (right - MARGIN.left)) * top;
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  for (let value = floor; value <= 1; value += 0.5) {
    const kind = value === 0 ? "pe-axis" : "pe-grid";
    const [x1, x2, y1] = [MARGIN.left, right, y(value)];
    node.append(svg("line", { class: kind, x1, x2, y1, y2: y1 }));
    const place = { x: x1 - 6, y: y1 + 4, "text-anchor": "end" };
    node.append(svg("text", place, number(value)));
  }
  for (const offset of ticks(top, width < 480 ? 4 : 8)) {
    const place = { x: x(offset), y: bottom + 16, "text-anchor": "middle" };
    node.append(svg("text", place, number(offset)));
  }
  const title = { x: (MARGIN.left + right) / 2, y: height - 4, "text-anchor": "middle" };
  node.append(svg("text", title, "distance Δ, in positions"));
  return { node, x, y, offsetAt, floor, right, bottom };
}

/** 0, s, 2s, … with a round step s and at most `count` steps. */
export function ticks(top, count) {
  const rough = top / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find((s) => s * power >= rough) * power);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, i) => i * step);
}

function path(points) {
  return "M" + points.map(([a, b]) => `${a.toFixed(2)},${b.toFixed(2)}`).join("L");
}

function drawCurve({ node, x, y }, { top, whole, fine, smooth }) {
  const d = path(fine.map((offset, i) => [x(offset), y(smooth[i])]));
  node.append(svg("path", { class: "pe-stroke pe-position", d }));
  if (top <= 64) {
    for (const [offset, value] of whole.entries()) {
      const place = { cx: x(offset), cy: y(value), r: 2.5 };
      node.append(svg("circle", { class: "pe-position", ...place }));
    }
  }
}

function drawLine(frame, { node, x, y, floor }, { top }) {
  const m = slope(frame.get("alibi"));
  if (m === null) return;
  const end = Math.min(top, (1 - floor) / m);
  const d = path([[x(0), y(1)], [x(end), y(1 - m * end)]]);
  node.append(svg("path", { class: "pe-stroke pe-quiet", d }));
  const flip = x(end) > x(top) / 2;
  const place = {
    x: x(end * 0.8) + (flip ? -8 : 8),
    y: y(1 - m * end * 0.8) + (flip ? 14 : 0),
    "text-anchor": flip ? "end" : "start",
  };
  node.append(svg("text", { class: "pe-halo", ...place }, "ALiBi"));
}

function drawTurns({ node, x, y, right }, { whole, turns }) {
  const { minimum, rebound } = turns;
  const word = right > 480 ? "first minimum" : "minimum";
  const marks = [[minimum, word, 20], [rebound, "rebound", -11]];
  const told = rebound !== null && whole[rebound] - whole[minimum] > 0.08;
  for (const [offset, name, down] of marks) {
    if (offset === null) continue;
    const [cx, cy] = [x(offset), y(whole[offset])];
    node.append(svg("circle", { class: "pe-position", cx, cy, r: 4.5 }));
    if (!told) continue;
    const anchor = cx > right - 40 ? "end" : "middle";
    const place = { x: cx, y: cy + down, "text-anchor": anchor };
    node.append(svg("text", { class: "pe-halo pe-position", ...place }, name));
  }
}

const chosen = (frame) => Math.min(frame.get("offset"), frame.get("max_offset"));

function drawChosen(frame, { node, x, y, bottom }, { whole }) {
  const offset = chosen(frame);
  const [x1, cy] = [x(offset), y(whole[offset])];
  const line = { x1, x2: x1, y1: MARGIN.top, y2: bottom };
  node.append(svg("line", { class: "pe-accent", "stroke-dasharray": "2 3", ...line }));
  node.append(svg("circle", { class: "pe-accent", cx: x1, cy, r: 5.5 }));
}

function readout(frame, { top, whole, turns }) {
  const offset = chosen(frame);
  const value = (i) => number(whole[i], 4);
  const lines = [`K(${number(offset)})/K(0) = ${value(offset)}`];
  const m = slope(frame.get("alibi"));
  if (m !== null) lines[0] += `; ALiBi's line is at ${number(1 - m * offset, 4)}`;
  const { minimum, rebound } = turns;
  if (minimum === null) {
    lines.push(`No minimum up to Δ = ${number(top)}.`);
  } else {
    const end = rebound === null ? top : rebound;
    const still = rebound === null ? ", still rising" : "";
    lines.push(
      `First minimum at Δ = ${number(minimum)}: ${value(minimum)}. ` +
        `Rebound to ${value(end)} at Δ = ${number(end)}${still}.`,
    );
  }
  return lines;
}

export default { render };
