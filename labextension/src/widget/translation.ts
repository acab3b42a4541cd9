/** The slider's language: the page's, if our extension runs in it; otherwise the kernel's, which sends the words. */
import type { TranslationBundle } from '@jupyterlab/translation';

const KEY = Symbol.for('jupyter-gpu.translation');

type Page = Record<symbol, TranslationBundle | undefined>;

/** Lend the page's translation to the sliders in its cells. */
export function lendTranslation(trans: TranslationBundle): void {
  (globalThis as unknown as Page)[KEY] = trans;
}

/** The page's translation, or one made of `words`: translations by the English words. */
export function translation(words: unknown): TranslationBundle {
  return (globalThis as unknown as Page)[KEY] ?? fromWords(words);
}

/** The used part of a bundle. */
function fromWords(words: unknown): TranslationBundle {
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
