/** The positions of the slider, the labels of some of them, and what is typed beside it. Pure. */
import { formatGpus, MILLI_PER_GPU } from './quantity';

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

const FRACTIONS = new Map([
  [125, '⅛'],
  [250, '¼'],
  [375, '⅜'],
  [500, '½'],
  [625, '⅝'],
  [750, '¾'],
  [875, '⅞']
]);

/** As short as possible, for ticks: `250` → `"¼"`, `1500` → `"1½"`, `300` → `"0.3"`. */
export function shortGpus(milli: number): string {
  const fraction = FRACTIONS.get(milli % MILLI_PER_GPU);
  if (!fraction) {
    return formatGpus(milli);
  }
  const whole = Math.floor(milli / MILLI_PER_GPU);
  return whole ? `${whole}${fraction}` : fraction;
}

/** The number that a person typed (`"2"`, `"0.5"`, `"0,5"`), NaN if it is none. */
export function typedNumber(typed: string): number {
  const text = typed.trim().replace(',', '.');
  return /^(\d{1,4}\.?\d{0,9}|\.\d{1,9})$/.test(text) ? Number(text) : NaN;
}

/** Milli of what a person typed in the number field, or `null` if that is no amount up to `limit`. */
export function parseGpus(typed: string, limit: number): number | null {
  const milli = typedNumber(typed) * MILLI_PER_GPU;
  const rounded = Math.round(milli);
  return Math.abs(milli - rounded) < 1e-6 && rounded <= limit ? rounded : null;
}
