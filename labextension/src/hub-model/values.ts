/** Values of limits that a person types, as the service wants them, or what is wrong with them. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { parseGpus } from '../words/positions';
import { MILLI_PER_GPU } from '../words/quantity';

/** The value that was read, or a sentence that says what is wrong. */
export type Read<T> = { readonly value: T } | { readonly error: string };
/** Reads what a person typed. */
export type Typing<T> = (typed: string, trans: TranslationBundle) => Read<T>;

/** Most GPUs of a limit, as milli. */
export const MOST_GPUS = 1000 * MILLI_PER_GPU;
const MOST_HOURS = 10_000_000;
const LONGEST = 366 * 24 * 3600;
const SECONDS = { h: 3600, m: 60, s: 1 } as const;

/** GPUs as a quantity: `"0,5"` → `"500m"`. */
export const readGpus: Typing<string> = (typed, trans) => {
  const milli = parseGpus(typed, MOST_GPUS);
  return milli === null
    ? { error: trans.__('Type a number of GPUs such as 2 or 0.5, up to 1000.') }
    : { value: quantity(milli) };
};

/** `2000` → `"2"`, `500` → `"500m"`, as the service writes it. */
export function quantity(milli: number): string {
  return milli % MILLI_PER_GPU ? `${milli}m` : String(milli / MILLI_PER_GPU);
}

/** Memory: `"40 GiB"` → `"40Gi"`. */
export const readMemory: Typing<string> = (typed, trans) => {
  const text = typed.trim().replace(',', '.');
  const found = /^(\d{1,6}(?:\.\d{1,3})?) ?([KMGTP]i|[MGTP])B?$/.exec(text);
  const bytes = /^\d{1,16}$/.test(text);
  return found || bytes
    ? { value: found ? found[1] + found[2] : text }
    : { error: trans.__('Type an amount of memory such as 40 GiB.') };
};

/** A reader of durations, `"1h 30m"` → `"1h30m"`, from `shortest` seconds on. */
export function readDuration(shortest: number): Typing<string> {
  return (typed, trans) => {
    const text = typed.replace(/\s/g, '').replace(/min/g, 'm');
    const seconds = secondsOf(text);
    if (seconds === null) {
      return { error: trans.__('Type a duration such as 10m, 4h or 1h30m.') };
    }
    return seconds < shortest || seconds > LONGEST
      ? {
          error: shortest
            ? trans.__('Type a duration from 1m to 8784h.')
            : trans.__('Type a duration up to 8784h.')
        }
      : { value: text };
  };
}

/** Seconds of a duration (`"1h30m"`); `null`: it is none. */
export function secondsOf(text: string): number | null {
  if (!/^(\d{1,5}[hms]){1,3}$/.test(text)) {
    return null;
  }
  const parts = [...text.matchAll(/(\d+)([hms])/g)];
  return parts.reduce(
    (sum, [, amount, unit]) => sum + Number(amount) * SECONDS[unit as keyof typeof SECONDS],
    0
  );
}

/** A reader of whole numbers between `low` and `high`. */
export function readWhole(low: number, high: number): Typing<number> {
  return (typed, trans) => {
    const text = typed.trim();
    const value = Number(text);
    return /^\d{1,9}$/.test(text) && value >= low && value <= high
      ? { value }
      : { error: trans.__('Type a whole number from %1 to %2.', low, high) };
  };
}

/** GPU-hours: a number where they are whole, else text such as `"0.5"`, as the service writes them. */
export const readGpuHours: Typing<number | string> = (typed, trans) => {
  const text = typed.trim().replace(',', '.');
  if (!/^\d{1,8}(\.\d{1,10})?$/.test(text) || Number(text) > MOST_HOURS) {
    return { error: trans.__('Type a number of GPU-hours such as 100 or 0.5.') };
  }
  const plain = text.replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
  return { value: plain.includes('.') ? plain : Number(plain) };
};

/** A time of the day, `"8:00"` → `"08:00"`; `end`: `24:00` is one, too. */
export function readClock(end: boolean): Typing<string> {
  return (typed, trans) => {
    const found = /^(\d{1,2}):(\d\d)$/.exec(typed.trim());
    const minutes = found ? 60 * Number(found[1]) + Number(found[2]) : Infinity;
    const most = 24 * 60 - (end ? 0 : 1);
    return found && Number(found[2]) < 60 && minutes <= most
      ? { value: `${found[1].padStart(2, '0')}:${found[2]}` }
      : { error: trans.__('Type a time of the day such as 08:00.') };
  };
}

/** Words of a model of GPU. */
export const readModel: Typing<string> = (typed, trans) => {
  const text = typed.trim();
  return /[0-9A-Za-z]/.test(text) && text.length <= 128
    ? { value: text }
    : { error: trans.__('Type words of the model’s name, such as A100.') };
};
