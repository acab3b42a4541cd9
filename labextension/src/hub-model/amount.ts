/** Amounts of limits: what the service writes, in words, and what a person types. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISourced } from '../hub-api/limits';
import { describeSource } from '../words/limit';
import { parseGpus } from '../words/positions';
import { formatGpus, MILLI_PER_GPU } from '../words/quantity';
import { gpus } from '../words/sentence';
import { MOST_GPUS, quantity, Read } from './values';

const UNLIMITED = 'unlimited';

/** Milli of a quantity (`"2"`, `"500m"`); `null`: unlimited, or nothing that this page knows. */
export function milliOf(quantity: string): number | null {
  const found = /^(\d{1,12})(m?)$/.exec(quantity);
  return found ? Number(found[1]) * (found[2] ? 1 : MILLI_PER_GPU) : null;
}

/** `"2 GPUs"`, `"unlimited"`. */
export function amount(quantity: string, trans: TranslationBundle): string {
  const milli = milliOf(quantity);
  if (milli !== null) {
    return gpus(milli, trans);
  }
  return quantity === UNLIMITED ? trans.__('unlimited') : quantity;
}

/** A field of a limit as a person would type it: `"2"`, `"0.5"`, `"unlimited"`, and empty for inherited. */
export function typedOf(value: unknown): string {
  const text = typeof value === 'string' || typeof value === 'number' ? String(value) : '';
  const milli = milliOf(text);
  return milli === null ? text : formatGpus(milli);
}

/** Read what a person typed for an amount of GPUs, `null`: inherited; `unlimited`: whether that word is one. */
export function readTyped(
  typed: string,
  trans: TranslationBundle,
  unlimited = true
): Read<string | null> {
  const text = typed.trim();
  if (!text || same(text, 'inherit', trans.__('inherit'))) {
    return { value: null };
  }
  if (unlimited && (text === '∞' || same(text, UNLIMITED, trans.__('unlimited')))) {
    return { value: UNLIMITED };
  }
  const milli = parseGpus(text, MOST_GPUS);
  if (milli !== null) {
    return { value: quantity(milli) };
  }
  return {
    error: unlimited
      ? trans.__('Type a number of GPUs such as 2 or 0.5, “unlimited”, or nothing to inherit.')
      : trans.__('Type a number of GPUs such as 2 or 0.5, or nothing to inherit.')
  };
}

function same(text: string, ...words: readonly string[]): boolean {
  return words.some(word => word.toLowerCase() === text.toLowerCase());
}

/** `"2 GPUs, set for group ml by root on 3 May"`; `you`: the reader is the user. */
export function sourced(
  { value, source }: ISourced,
  trans: TranslationBundle,
  you: boolean
): string {
  return trans.__('%1, %2', amount(value, trans), describeSource(source, trans, you));
}
