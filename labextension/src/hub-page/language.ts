/** The words of the page in the language that the service chose, which it has from installed language packs. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { record, text } from '../api/check';
import { Api } from '../hub-api/call';
import { dictionary } from '../hub-api/limits';
import { fromWords } from '../words/translation';

interface ITranslation {
  /** `de_DE`. */
  readonly locale: string;
  /** By the English words. */
  readonly words: Readonly<Record<string, string>>;
}

const word = text(20_000);
const readTranslation = record<ITranslation>({
  locale: text(64),
  words: (value, field) => dictionary(value, field, word)
});

/** A language: its name as browsers write it, and the words. */
export interface ILanguage {
  readonly name: string;
  readonly trans: TranslationBundle;
}

/** The language of a page that came in `shown` (`de-DE`): English needs no words, and is used where they cannot be had. */
export async function loadLanguage(api: Pick<Api, 'get'>, shown: string): Promise<ILanguage> {
  if (shown.startsWith('en')) {
    return language('en', {});
  }
  try {
    const { locale, words } = await api.get('translation', readTranslation);
    return language(Intl.getCanonicalLocales(locale.replace(/_/g, '-'))[0], words);
  } catch (error) {
    console.warn('jupyter-gpu: the page is English:', error);
    return language('en', {});
  }
}

function language(name: string, words: ITranslation['words']): ILanguage {
  return { name, trans: Object.assign(fromWords(words), { getLocale: () => name }) };
}
