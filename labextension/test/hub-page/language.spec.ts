import { Reader } from '../../src/api/check';
import { loadLanguage } from '../../src/hub-page/language';
import { locale } from '../../src/words/limit';

/** A service that answers with `body`. */
const service = (body: unknown) => ({
  get: <T>(path: string, read: Reader<T>) => Promise.resolve(read(body, path))
});

test('words come from the service, dates in the same language', async () => {
  const answer = { locale: 'de_DE', words: { 'Saved: %1 limits.': '%1 Limits gespeichert.' } };
  const { name, trans } = await loadLanguage(service(answer), 'de-CH');
  expect([name, locale(trans)]).toEqual(['de-DE', 'de-DE']);
  expect(trans.__('Saved: %1 limits.', 2)).toBe('2 Limits gespeichert.');
  expect(trans.__('Close')).toBe('Close');
});

test.each([
  ['no answer', { locale: 7 }],
  ['a locale that is none', { locale: '%', words: {} }],
  ['words that are none', { locale: 'de', words: { Close: 1 } }]
])('%s leaves the page English', async (_, answer) => {
  const warn = jest.spyOn(console, 'warn').mockImplementation();
  const { name, trans } = await loadLanguage(service(answer), 'de');
  expect([name, trans.__('Close')]).toEqual(['en', 'Close']);
  expect(warn).toHaveBeenCalled();
  warn.mockRestore();
});

test('a page in English asks for no words', async () => {
  const never = { get: () => Promise.reject(new Error('asked')) };
  expect((await loadLanguage(never, 'en-US')).name).toBe('en');
});
