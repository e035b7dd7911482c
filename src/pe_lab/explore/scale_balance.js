// Chapter 07: the lengths of word and position in their sum, and how they share it.
import { buttons, choice, explorable, number, octaves } from "./_common.js";
import { significant, slider, svg, toggle } from "./_common.js";

/** √2·Γ((d+1)/2)/Γ(d/2): the mean length of d independent N(0, 1) entries. */
export function meanLength(dModel) {
  let ratio = 1 / Math.sqrt(Math.PI); // Γ(1)/Γ(1/2)
  for (let n = 1; n < dModel; n++) ratio = n / (2 * ratio);
  return Math.SQRT2 * ratio;
}

/** "1/sqrt(d)", "1" or "0.02" as a number. */
export function factor(name, dModel) {
  return name === "1/sqrt(d)" ? 1 / Math.sqrt(dModel) : Number(name);
}

/** Lengths, shares and angle of word e and position p in e + p. */
export function balance({ dModel, init, scaleWords, scalePositions }) {
  const std = factor(init, dModel) * (scaleWords ? Math.sqrt(dModel) : 1);
  const times = factor(scalePositions, dModel);
  const word = std * meanLength(dModel);
  const position = times * Math.sqrt(dModel / 2);
  const energy = [dModel * std ** 2, position ** 2]; // E‖e‖² and ‖p‖²
  return {
    word,
    position,
    shareOfLength: word / (word + position),
    shareOfEnergy: energy[0] / (energy[0] + energy[1]),
    cosine: Math.sqrt(energy[0] / (energy[0] + energy[1])),
  };
}

/** Cases that have a name: on the button, in full, [init, scale_words, scale_positions]. */
export const CASES = [
  ["√d forgotten", "the √d bug", ["1/sqrt(d)", false, "1"]],
  ["the paper", "the paper's recipe", ["1/sqrt(d)", true, "1"]],
  ["positions ÷ √d", "the other recipe", ["1/sqrt(d)", false, "1/sqrt(d)"]],
  ["both", "both recipes at once", ["1/sqrt(d)", true, "1/sqrt(d)"]],
  ["PyTorch default", "PyTorch's default, left alone", ["1", false, "1"]],
  ["PyTorch × √d", "√d on top of PyTorch's default", ["1", true, "1"]],
];

/** Who wins, for a length of the word against that of the position. */
export function verdict({ word, position }) {
  if (word * 4 < position) return "The position drowns the word.";
  if (position * 4 < word) return "The word drowns the position.";
  return "Neither drowns the other.";
}

const SETTINGS = ["init", "scale_words", "scale_positions"];

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    const named = addControls(frame);
    return (width) => {
      const now = SETTINGS.map(frame.get);
      const at = CASES.findIndex(([, , settings]) => String(settings) === String(now));
      named.forEach((button, i) => button.setAttribute("aria-pressed", i === at));
      const dModel = frame.get("d_model");
      const [init, scaleWords, scalePositions] = now;
      const found = balance({ dModel, init, scaleWords, scalePositions });
      frame.figure.replaceChildren(draw(found, width));
      return readout(found, CASES[at]);
    };
  });
}

function addControls(frame) {
  const set = (values) => SETTINGS.forEach((name, i) => frame.set(name, values[i]));
  const named = buttons(
    frame,
    CASES.map(([name, , values]) => [name, () => set(values)]),
  );
  slider(frame, "d_model", { label: "width d_model", stops: octaves(16, 4096, 2) });
  choice(frame, "init", {
    label: "words drawn from",
    options: [
      ["1/sqrt(d)", "N(0, 1/d)"],
      ["1", "N(0, 1), PyTorch's default"],
      ["0.02", "N(0, 0.02²)"],
    ],
  });
  choice(frame, "scale_positions", {
    label: "positions times",
    options: [
      ["1", "1"],
      ["1/sqrt(d)", "1/√d"],
    ],
  });
  toggle(frame, "scale_words", { label: "words times √d" });
  return named;
}

function draw(found, width) {
  const wide = width > 560;
  const barsWidth = wide ? width * 0.56 : width;
  const box = wide
    ? { x: barsWidth + 28, y: 10, width: width - barsWidth - 40, height: 150 }
    : { x: 8, y: 190, width: width - 30, height: 140 };
  const height = wide ? 168 : 350;
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  node.append(drawBars(found, barsWidth), drawShares(found, barsWidth));
  node.append(drawTriangle(found, box));
  return node;
}

function drawBars({ word, position }, width) {
  const group = svg("g");
  const room = width - 70; // for the number after the longest bar
  const bars = [
    ["E‖word‖", word, "pe-content", 0],
    ["‖position‖", position, "pe-position", 48],
  ];
  for (const [name, length, kind, y] of bars) {
    const long = Math.max(1, (room * length) / Math.max(word, position));
    group.append(svg("text", { class: `${kind} pe-strong`, x: 0, y: y + 13 }, name));
    const bar = { x: 0, y: y + 19, width: long, height: 16, rx: 2 };
    group.append(svg("rect", { class: kind, ...bar }));
    const text = significant(length);
    group.append(svg("text", { class: "pe-ink", x: long + 7, y: y + 31 }, text));
  }
  return group;
}

/** One bar for the whole energy of the sum, cut where the word's share ends. */
function drawShares({ shareOfEnergy }, width) {
  const y = 112;
  const cut = Math.min(width - 1, Math.max(1, width * shareOfEnergy));
  const percent = (share) => `${number(100 * share, share > 0.01 && share < 0.99 ? 0 : 1)} %`;
  const group = svg("g", {}, svg("text", { x: 0, y: y + 6 }, "shares of the energy of the sum"));
  const bar = { y: y + 13, height: 16 };
  group.append(svg("rect", { class: "pe-content", x: 0, width: cut, ...bar }));
  const rest = { x: cut + 1, width: Math.max(0, width - cut - 1) };
  group.append(svg("rect", { class: "pe-position", ...rest, ...bar }));
  const row = { y: y + 45 };
  const word = `word ${percent(shareOfEnergy)}`;
  const position = `position ${percent(1 - shareOfEnergy)}`;
  group.append(svg("text", { class: "pe-content", x: 0, ...row }, word));
  const end = { x: width, "text-anchor": "end" };
  group.append(svg("text", { class: "pe-position", ...end, ...row }, position));
  return group;
}

/** e to the right, p upwards at a right angle, their sum across. To scale. */
function drawTriangle({ word, position, cosine }, box) {
  const scale = Math.min((box.width - 8) / word, (box.height - 34) / position);
  const [x, y] = [box.x, box.y + box.height - 14];
  const [right, top] = [x + Math.max(2, word * scale), y - Math.max(2, position * scale)];
  const side = (kind, x1, y1, x2, y2) =>
    svg("line", { class: `pe-stroke pe-hand ${kind}`, x1, y1, x2, y2 });
  const group = svg("g", {}, side("pe-content", x, y, right, y));
  group.append(side("pe-position", right, y, right, top));
  group.append(side("pe-accent", x, y, right, top));
  const angle = (Math.acos(Math.min(1, cosine)) * 180) / Math.PI;
  const sum = svg("tspan", { class: "pe-accent pe-strong" }, "the sum");
  const title = ["angle of ", sum, ` to the word: ${number(angle, 0)}°`];
  group.append(svg("text", { x: box.x, y: box.y + 3 }, ...title));
  group.append(svg("text", { class: "pe-content", x, y: y + 16 }, "word"));
  const room = right + 60 < box.x + box.width;
  const beside = room
    ? { x: right + 6, y: (y + top) / 2 + 4 }
    : { x: right, y: top - 8, "text-anchor": "end" };
  group.append(svg("text", { class: "pe-position", ...beside }, "position"));
  return group;
}

function readout(found, named) {
  const { word, position, shareOfLength, shareOfEnergy, cosine } = found;
  const ratio = word > position ? word / position : position / word;
  const longer = word > position ? "word" : "position";
  const percent = (share) => `${significant(100 * share, 3)} %`;
  const name = named ? `This is ${named[1]}. ` : "";
  return [
    name + verdict(found),
    `E‖word‖ = ${significant(word)}, ‖position‖ = ${significant(position)}: ` +
      `the ${longer} is ${significant(ratio, 3)} times as long.`,
    `The word has ${percent(shareOfLength)} of the two lengths and ` +
      `${percent(shareOfEnergy)} of the energy; cos(e + p, e) is about ` +
      `${number(cosine, 3)}.`,
  ];
}

export default { render };
