/** The positions of the slider, and those that get a label. Pure. */

/** The server's steps up to the limit, and `current` if code asked for something between. */
export function positions(
  steps: readonly number[],
  limit: number,
  current: number
): readonly number[] {
  const offered = steps.filter(step => step <= limit);
  return [...new Set([0, ...offered, current])].sort((a, b) => a - b);
}

/** The position nearest to `milli`, as its index. */
export function nearest(places: readonly number[], milli: number): number {
  let best = 0;
  places.forEach((place, i) => {
    if (Math.abs(place - milli) < Math.abs(places[best] - milli)) {
      best = i;
    }
  });
  return best;
}

/**
 * Indices of the places to label, at most `room` of them: the ends always, whole GPUs before
 * fractions, evenly thinned out.
 */
export function labelled(places: readonly number[], room: number): readonly number[] {
  const all = places.map((_, i) => i);
  if (all.length <= room) {
    return all;
  }
  const last = all.length - 1;
  const whole = all.filter(i => places[i] % 1000 === 0);
  const stride = Math.ceil((whole.length - 1) / Math.max(1, room - 1));
  const chosen = whole.filter((_, i) => i % stride === 0 && last - whole[i] >= stride);
  return [...new Set([0, ...chosen, last])];
}
