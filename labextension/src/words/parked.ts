/** Words about GPU memory that is parked: the twin of `jupyter_gpu/model/parking_words.py`. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IGpu } from '../api/view';
import { formatBytes } from './quantity';

/** Whether all that the server has on it is in memory, or on its way back. */
export const isAway = ({ state, parked }: IGpu) => state === 'attaching' && !!parked;

/** `"34 GiB in memory since 12:05, back at the next use (about 6 s)"`; `now` is in seconds since 1970. */
export function inMemory(gpus: readonly IGpu[], now: number, trans: TranslationBundle): string {
  const { bytes, since, back } = joined(gpus);
  const [amount, time] = [formatBytes(bytes), clock(since, now)];
  return about(trans.__('%1 in memory since %2, back at the next use', amount, time), back, trans);
}

/** `"34 GiB come back from memory (about 6 s)"`. */
export function wayBack(gpus: readonly IGpu[], trans: TranslationBundle): string {
  const { bytes, back } = joined(gpus);
  return about(trans.__('%1 come back from memory', formatBytes(bytes)), back, trans);
}

const about = (text: string, seconds: number | null, trans: TranslationBundle) =>
  seconds === null ? text : trans.__('%1 (about %2 s)', text, seconds);

/** The parked memory of all; they come back beside each other. */
function joined(gpus: readonly IGpu[]) {
  const found = gpus.flatMap(({ parked }) => parked ?? []);
  const times = found.flatMap(({ back }) => back ?? []);
  return {
    bytes: found.reduce((sum, { bytes }) => sum + bytes, 0),
    since: Math.min(...found.map(({ since }) => since)),
    back: times.length ? Math.max(...times) : null
  };
}

/** `"12:05"`, with the date before it if that is not today's. */
function clock(since: number, now: number): string {
  const [moment, today] = [since, now].map(
    seconds => new Date(seconds * 1000).toLocaleString('sv').slice(0, 16).split(' ') // as in ISO 8601
  );
  return moment[0] === today[0] ? moment[1] : moment.join(' ');
}
