import { nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { ISource, IUserLimit, IView, parseView } from '../../src/api/view';
import { describeLimit, describeSource, locale, timeLeft } from '../../src/words/limit';
import { translation } from '../../src/widget/translation';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');

test.each(golden('limits').map(c => [c.name, c] as const))('%s', (_, { view, described }) => {
  const { userLimit } = parseView(view, 'view');
  expect(describeLimit(userLimit!, trans)).toBe(described);
});

const SOURCE: ISource = {
  kind: 'Group',
  name: 'ml',
  by: '',
  at: null,
  part: null,
  unreadable: false
};

test('only the known parts of a source are shown', () => {
  const of = (more: Partial<ISource>) => describeSource({ ...SOURCE, ...more }, trans);
  expect(of({})).toBe('set for group ml');
  expect(of({ by: 'root' })).toBe('set for group ml by root');
  expect(of({ at: 0 })).toBe('set for group ml on 1 January');
  // The first and the last second of a day in UTC, wherever the page is.
  expect(of({ at: 1777766400 })).toBe('set for group ml on 3 May');
  expect(of({ at: 1777852799 })).toBe('set for group ml on 3 May');
  expect(of({ kind: 'Cap', at: 1777800000 })).toBe('the cap for everyone, set on 3 May');
  expect(of({ kind: 'Cap', part: 'budget' })).toBe('the used-up budget of the cap for everyone');
  expect(of({ kind: 'Namespace', name: '', part: 'hours' })).toBe('the hours for namespace ?');
  expect(of({ kind: 'Unset' })).toBe('as no limit is set');
  expect(of({ kind: 'ofANewerServer', by: 'root' })).toBe('set for everyone by root');
});

test('long names are cut at letters, not inside of them', () => {
  const name = '\u{1F600}'.repeat(65);
  const text = describeSource({ ...SOURCE, name }, trans);
  expect(text).toBe(`set for group ${'\u{1F600}'.repeat(63)}…`);
  const whole = describeSource({ ...SOURCE, name: 'x'.repeat(64) }, trans);
  expect(whole).toBe(`set for group ${'x'.repeat(64)}`);
});

test('dates are in the language of the page', () => {
  const german = Object.create(trans, { getLocale: { value: () => 'de' } }) as TranslationBundle;
  expect(locale(german)).toBe('de');
  expect(describeSource({ ...SOURCE, at: 1777800000 }, german)).toMatch(/3\. Mai$/);
  expect(locale(translation({}))).toBe('en-GB'); // of a page without JupyterLab
});

test('a limit without what is left of it counts as whole', () => {
  const limit: IUserLimit = {
    milli: null,
    max: 2000,
    source: SOURCE,
    giveBackAt: null,
    memory: null
  };
  expect(describeLimit(limit, trans)).toBe('Your limit is 2 GPUs, set for group ml.');
});

test.each([
  [1, '1 s'],
  [60, '60 s'],
  [61, '2 min'],
  [600, '10 min'],
  [3540, '59 min'],
  [3541, '1 h 0 min'],
  [90061, '25 h 2 min']
])('%d seconds are left: %s', (seconds, text) => {
  expect(timeLeft(seconds, trans)).toBe(text);
});

test('a limit that does not fit the contract is refused', () => {
  const [{ view }] = golden('limits');
  const json = view as IView & { allocated: { limit: object } };
  const of = (more: object) => ({
    ...json,
    allocated: { ...json.allocated, limit: { ...json.allocated.limit, ...more } }
  });
  for (const wrong of [
    { max: -1 },
    { milli: 'all' },
    { giveBackAt: 1e15 },
    { source: null },
    { source: { kind: 7 } },
    { source: { kind: 'User', at: 1e15 } }
  ]) {
    expect(() => parseView(of(wrong), 'view')).toThrow("'view.allocated.limit");
  }
  expect(parseView(of({ newer: 1 }), 'view').userLimit?.max).toBe(2000);
});
