/** Fields of limits in words. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { Fields } from '../hub-api/limits';
import { amount } from './amount';

/** A field of a limit in words: amounts of GPUs as such, others as the spec has them. */
export function fieldText(name: string, value: unknown, trans: TranslationBundle): string {
  if (value === null || value === undefined) {
    return trans.__('inherited');
  }
  if (typeof value === 'string') {
    return name === 'max' || name === 'guaranteed' ? amount(value, trans) : value;
  }
  return JSON.stringify(value);
}

/** `"max: 2 GPUs → 3 GPUs"`, for each field that differs; a limit that was made or removed says so. */
export function changeTexts(
  from: Fields | null,
  to: Fields | null,
  trans: TranslationBundle
): readonly string[] {
  const names = [...new Set([...Object.keys(from ?? {}), ...Object.keys(to ?? {})])];
  const differing = names.filter(
    name => JSON.stringify(from?.[name] ?? null) !== JSON.stringify(to?.[name] ?? null)
  );
  const texts = differing.map(name =>
    trans.__(
      '%1: %2 → %3',
      name,
      fieldText(name, from?.[name], trans),
      fieldText(name, to?.[name], trans)
    )
  );
  return to ? texts : [trans.__('removed'), ...texts];
}
