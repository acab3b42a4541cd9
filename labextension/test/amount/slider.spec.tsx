/** @jest-environment jsdom */
import { nullTranslator } from '@jupyterlab/translation';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { GpuSlider, ISliderProps } from '../../src/amount/slider';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

const BASE: ISliderProps = {
  steps: [0, 250, 500, 1000, 2000, 3000, 4000],
  limit: 4000,
  value: 0,
  attached: 0,
  disabled: false,
  trans: nullTranslator.load('jupyter_gpu'),
  onCommit: () => undefined
};

let root: Root;
let commits: number[];

beforeEach(() => {
  document.body.innerHTML = '<div></div>';
  root = createRoot(document.body.firstElementChild!);
  commits = [];
});

afterEach(() => act(() => root.unmount()));

const show = (props: Partial<ISliderProps> = {}) =>
  act(() =>
    root.render(<GpuSlider {...BASE} onCommit={milli => commits.push(milli)} {...props} />)
  );
const range = () => document.querySelector<HTMLInputElement>('input[type=range]')!;
const field = () => document.querySelector<HTMLInputElement>('input[type=text]')!;

/** Set the value as a browser does: behind React's back, then the event. */
function input(node: HTMLInputElement, value: string): void {
  act(() => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')!.set!.call(node, value);
    node.dispatchEvent(new Event('input', { bubbles: true }));
  });
}

const fire = (node: HTMLElement, event: Event) =>
  act(() => {
    node.dispatchEvent(event);
  });
const change = (node: HTMLElement) => fire(node, new Event('change', { bubbles: true }));
const key = (type: string, name: string) => new KeyboardEvent(type, { key: name, bubbles: true });

test('shows the request by the index of its step, and in words', () => {
  show({ value: 500 });
  expect(range().value).toBe('2');
  expect(range().max).toBe('6');
  expect(range().getAttribute('aria-valuetext')).toBe('0.5 of 4 GPUs');
  expect(range().labels![0].textContent).toBe('GPUs for this server');
  expect(range().dataset.lmSuppressShortcuts).toBe('true');
  expect(field().value).toBe('0.5');
});

test('dragging changes only the words; releasing makes the request', () => {
  show();
  for (const at of ['1', '2', '3', '4']) {
    input(range(), at);
  }
  expect(range().getAttribute('aria-valuetext')).toBe('2 of 4 GPUs');
  expect(field().value).toBe('2');
  expect(commits).toEqual([]);
  change(range());
  expect(commits).toEqual([2000]);
});

test('a held key makes one request when it is released', () => {
  show();
  for (const at of ['1', '2', '3']) {
    fire(range(), key('keydown', 'ArrowRight'));
    input(range(), at);
    change(range());
  }
  expect(commits).toEqual([]);
  fire(range(), key('keyup', 'ArrowRight'));
  expect(commits).toEqual([1000]);
});

test('a key held while the focus leaves makes its request then', () => {
  show();
  fire(range(), key('keydown', 'End'));
  input(range(), '6');
  change(range());
  fire(range(), new FocusEvent('focusout', { bubbles: true }));
  expect(commits).toEqual([4000]);
});

test('Tab over the slider makes no request', () => {
  show({ value: 1000 });
  fire(range(), key('keydown', 'Tab'));
  fire(range(), key('keyup', 'Tab'));
  expect(commits).toEqual([]);
});

test('returning to the old position makes no request', () => {
  show({ value: 1000 });
  input(range(), '6');
  input(range(), '3');
  change(range());
  expect(commits).toEqual([]);
});

test('server updates do not move a thumb that is being dragged', () => {
  show({ value: 0 });
  input(range(), '4');
  show({ value: 1000 });
  expect(range().value).toBe('4');
  change(range());
  expect(commits).toEqual([2000]);
});

test('an amount between the steps gets its own position', () => {
  show({ value: 2500 });
  expect(range().getAttribute('aria-valuetext')).toBe('2.5 of 4 GPUs');
  expect(range().max).toBe('7');
});

test('the number field makes a request on Enter or on leaving it', () => {
  show();
  input(field(), '1.5');
  expect(commits).toEqual([]);
  fire(field(), key('keydown', 'Enter'));
  expect(commits).toEqual([1500]);
  input(field(), '0,25');
  fire(field(), new FocusEvent('focusout', { bubbles: true }));
  expect(commits).toEqual([1500, 250]);
});

test('an invalid amount is reported and never sent', () => {
  show();
  input(field(), '5');
  expect(field().getAttribute('aria-invalid')).toBe('true');
  const error = document.getElementById(field().getAttribute('aria-errormessage')!)!;
  expect(error.textContent).toMatch(/from 0 to 4/);
  fire(field(), key('keydown', 'Enter'));
  expect(commits).toEqual([]);
  fire(field(), key('keydown', 'Escape'));
  expect(field().value).toBe('0');
  expect(field().getAttribute('aria-invalid')).toBe('false');
});

test('the slider is disabled without a connection', () => {
  show({ disabled: true });
  expect(range().disabled).toBe(true);
  expect(field().disabled).toBe(true);
});

test('a limit that is lowered while the thumb is dragged ends below it', () => {
  show();
  input(range(), '6');
  show({ steps: [0, 250, 500, 1000, 2000], limit: 2000 });
  expect(range().getAttribute('aria-valuetext')).toBe('2 of 2 GPUs');
  expect(field().value).toBe('2');
  change(range());
  expect(commits).toEqual([2000]);
});

test('a limit that is lowered and raised again leaves a dragged thumb where it was', () => {
  show();
  input(range(), '6');
  show({ steps: [0, 250, 500], limit: 500 });
  expect(range().getAttribute('aria-valuetext')).toBe('0.5 of 0.5 GPU');
  show();
  expect(range().getAttribute('aria-valuetext')).toBe('4 of 4 GPUs');
  change(range());
  expect(commits).toEqual([4000]);
});

test('with a limit of nothing a request that stands can be taken back, and nothing can be asked for', () => {
  show({ steps: [0], limit: 0, value: 0 });
  expect(range().disabled).toBe(true);
  show({ steps: [0], limit: 0, value: 3000 });
  expect(range().disabled).toBe(false);
  expect(range().getAttribute('aria-valuetext')).toBe('3 of 0 GPUs');
  fire(range(), key('keydown', 'Home'));
  input(range(), '0');
  fire(range(), key('keyup', 'Home'));
  expect(commits).toEqual([0]);
  input(field(), '1');
  expect(field().getAttribute('aria-invalid')).toBe('true');
});

test('after a release nothing of the drag is left, although the browser moved the thumb itself', () => {
  show();
  input(range(), '6');
  show({ steps: [0, 250, 500, 1000, 2000], limit: 2000 });
  // A lower `max` moves the thumb without an event, so React takes the release for a change of its own.
  act(() => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')!.set!.call(range(), '3');
  });
  change(range());
  expect(commits).toEqual([1000]);
  show({ value: 500 });
  expect(range().getAttribute('aria-valuetext')).toBe('0.5 of 4 GPUs');
  expect(field().value).toBe('0.5');
});
