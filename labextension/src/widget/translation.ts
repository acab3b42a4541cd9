/** The slider's language: the page's, if our extension runs in it; otherwise the kernel's, which sends the words. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { fromWords } from '../words/translation';

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
