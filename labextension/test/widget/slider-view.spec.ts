/** @jest-environment jsdom */
import { nullTranslator } from '@jupyterlab/translation';
import { IView, parseView } from '../../src/api/view';
import { ShareHistory } from '../../src/history/share-history';
import { IShown, SliderView } from '../../src/widget/slider-view';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');
const of = (name: string): IView =>
  parseView(golden('limits').find(one => one.name === name)!.view, 'view');

let slider: SliderView;
let commits: number[];

beforeEach(() => {
  commits = [];
  slider = new SliderView(trans, {
    commit: milli => commits.push(milli),
    retry: () => undefined
  });
  document.body.replaceChildren(slider.root);
});

const shown = (view: IView | null): IShown => ({
  ...{ view, pending: null, trouble: '', error: '', instead: '', far: false },
  shares: new ShareHistory(60)
});
const show = (view: IView | null) => slider.show(shown(view));
const input = () => slider.root.querySelector('input')!;
const limit = () => slider.root.querySelector('.jp-gpu-InCell-limit')!;
const output = () => slider.root.querySelector('.jp-gpu-InCell-amount')!.textContent;

/** Move the thumb, as a mouse does. */
function drag(to: number): void {
  input().value = String(to);
  input().dispatchEvent(new Event('input'));
}

test('the limit stands below the line, as text', () => {
  show(of('waiting for the limit with nothing'));
  expect(slider.root.querySelector('img')).toBeNull();
  expect(limit().textContent).toBe(
    'Your limit is 0 GPUs, set for group <img src=x onerror=alert(1)> by =cmd() on 3 May.'
  );
  show(of('over a limit that was lowered'));
  expect(limit().textContent).toContain('1 GPU will be taken back at 14:30 UTC on 25 November');
  show({ ...of('within the limit'), userLimit: null });
  expect(limit().textContent).toBe('');
  show(of('within the limit'));
  show(null);
  expect(limit().textContent).toBe('');
});

test('a limit that is lowered while the thumb is moved ends below it', () => {
  const two = of('within the limit');
  show(two);
  drag(4);
  expect(output()).toBe('2 of 2 GPUs');
  show({ ...two, steps: [0, 250, 500, 1000, 1500], limit: 1500 });
  expect(output()).toBe('1.5 of 1.5 GPUs');
  input().dispatchEvent(new Event('change'));
  expect(commits).toEqual([1500]);
});

test('news do not move a thumb that is being moved', () => {
  const two = of('within the limit');
  show(two);
  drag(1);
  show({ ...two, amounts: { ...two.amounts, attached: 0 } });
  expect(output()).toBe('0.25 of 2 GPUs');
  input().dispatchEvent(new Event('change'));
  expect(commits).toEqual([250]);
});

test('a GPU that is open without work has a line, a busy one has none', () => {
  const two = parseView(golden('views').find(one => /open and idle/.test(one.name))!.view, 'view');
  const lines = () =>
    Array.from(slider.root.querySelectorAll('.jp-gpu-InCell-idle p'), line => line.textContent);
  const [first, second] = two.gpus;
  const since = Math.floor(Date.now() / 1000) - 12 * 60;
  show({ ...two, gpus: [{ ...first, idleSince: since }, second] });
  expect(lines()).toEqual(['GPU 0: Idle for 12 min: nothing runs on it']);
  show({ ...two, gpus: [second] });
  expect(lines()).toEqual([]);
  show({ ...two, gpus: [{ ...first, idleSince: since }] });
  show(null);
  expect(lines()).toEqual([]);
});
