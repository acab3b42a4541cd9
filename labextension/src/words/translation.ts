/** Translation without JupyterLab: patterns filled with values, and a bundle made of known words. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';

/** The used part of a bundle, of `words`: translations by the English words; what is not in it stays English. */
export function fromWords(words: unknown): TranslationBundle {
  const known = new Map(Object.entries((words ?? {}) as Record<string, unknown>));
  const __ = (english: string, ...values: (string | number)[]) => {
    const found = known.get(english);
    return fill(typeof found === 'string' ? found : english, values);
  };
  return { __ } as TranslationBundle;
}

/** `"%1 of %2"` with its values. */
export function fill(pattern: string, values: readonly (string | number)[]): string {
  return pattern.replace(/%(\d)/g, (all, n: string) => {
    const value = values.at(Number(n) - 1);
    return value === undefined ? all : String(value);
  });
}
