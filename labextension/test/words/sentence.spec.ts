import { nullTranslator } from '@jupyterlab/translation';
import { BadAnswerError, RefusedError, UnreachableError } from '../../src/api/request';
import { parseView } from '../../src/api/view';
import { explain, sentence } from '../../src/words/sentence';
import { inMemory } from '../../src/words/parked';
import { speak } from '../../src/words/remote-sentence';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');
const cases = [...golden('sentences'), ...golden('limits')];
const lines = () => cases.map(({ view }) => sentence(parseView(view, 'view'), trans));
const before = lines();
speak();

test('only lines about other nodes, lent and parked GPUs and strangers need the words that are loaded with these', () => {
  const after = lines();
  const differ = cases
    .filter((_, at) => before[at] !== after[at])
    .map(({ view }) => parseView(view, 'view'));
  expect(differ.length).toBeGreaterThan(0);
  expect(
    differ.every(
      ({ gpus, workers }) =>
        workers.length ||
        gpus.some(gpu => gpu.guest || gpu.keeps || gpu.parked || gpu.strangers.length)
    )
  ).toBe(true);
});

test.each(cases.map(c => [c.name, c] as const))('%s', (_, { view, sentence: text }) => {
  expect(sentence(parseView(view, 'view'), trans)).toBe(text);
});

test('names are sorted by code points, as in Python', () => {
  const { view } = golden('sentences').find(c => /still has it open/.test(c.sentence!))!;
  const json = structuredClone(view) as {
    gpus: { state: string; users: { notebook: string | null }[] }[];
  };
  const gpu = json.gpus.find(item => item.state === 'draining')!;
  const user = gpu.users[0];
  // In UTF-16 the emoji sorts before the last of these, by code points after it; 'ä' sorts after 'z'.
  gpu.users = ['\u{1F600}.ipynb', 'ä.ipynb', '\uFF21.ipynb'].map(notebook => ({
    ...user,
    notebook
  }));
  expect(sentence(parseView(json, 'view'), trans)).toContain(
    'ä.ipynb, \uFF21.ipynb and \u{1F600}.ipynb still have it open'
  );
});

test('errors say what to do', () => {
  expect(explain(new UnreachableError('Failed to fetch'), trans)).toMatch(/did not answer/);
  expect(explain(new BadAnswerError("'view.gpus' must be a list"), trans)).toMatch(
    /'view.gpus'.*Reload/
  );
  expect(explain(new RefusedError('', '404 Not Found', 404), trans)).toMatch(/no jupyter-gpu/);
  expect(explain(new RefusedError('LimitExceeded', 'Your limit is 2.', 422), trans)).toBe(
    'Your limit is 2.'
  );
});

test('a time of today is one of the clock, others have their date', () => {
  const noon = Date.UTC(2026, 4, 28, 12, 5) / 1000; // the tests run in UTC
  const parsed = parseView(golden('views').find(c => /next park/.test(c.name))!.view, 'view');
  const gpus = parsed.gpus
    .filter(gpu => gpu.parked)
    .map(gpu => ({ ...gpu, parked: { ...gpu.parked!, since: noon } }));
  expect(inMemory(gpus, noon + 3600, trans)).toContain(' since 12:05, ');
  expect(inMemory(gpus, noon + 86400, trans)).toContain(' since 2026-05-28 12:05, ');
});
