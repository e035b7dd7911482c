// The sinusoidal table, as in pe_lab.encodings.sinusoidal (Vaswani et al. 2017, 3.5).

/** ω_i = base^(−2i/d), i = 0 … ⌈d/2⌉−1, in radians per position. */
export function invFreq(dModel, base) {
  const pairs = Math.ceil(dModel / 2);
  return Array.from({ length: pairs }, (_, i) => base ** ((-2 * i) / dModel));
}

/** PE(p): sin and cos of p·ω_i, "interleaved" or in "halves". An odd width ends in sin. */
export function sinusoidal(position, dModel, base, order = "interleaved") {
  const angles = invFreq(dModel, base).map((omega) => position * omega);
  const sines = angles.map(Math.sin);
  const cosines = angles.map(Math.cos);
  const row =
    order === "halves"
      ? [...sines, ...cosines]
      : sines.flatMap((sine, i) => [sine, cosines[i]]);
  return row.slice(0, dModel);
}

/** max |a_i − b_i|. */
export function maxDifference(a, b) {
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);
}
