/** @jest-environment jsdom */
import { PageConfig } from '@jupyterlab/coreutils';
import { nullTranslator } from '@jupyterlab/translation';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { Limit, useLimitNews } from '../../src/amount/limit';
import { IView, parseView } from '../../src/api/view';
import { golden } from '../golden';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

const trans = nullTranslator.load('jupyter_gpu');
const of = (name: string): IView =>
  parseView(golden('limits').find(one => one.name === name)!.view, 'view');
const LOWERED = of('over a limit that was lowered');
const AT = LOWERED.userLimit!.giveBackAt!;

let root: Root;

beforeEach(() => {
  jest.useFakeTimers();
  jest.setSystemTime(1000 * (AT - 600));
  document.body.innerHTML = '<div></div>';
  root = createRoot(document.body.firstElementChild!);
});

afterEach(() => {
  act(() => root.unmount());
  expect(jest.getTimerCount()).toBe(0);
  PageConfig.setOption('jupyterGpuLimits', '');
  hide(false);
  jest.useRealTimers();
});

const show = (view: IView) => act(() => root.render(<Limit view={view} trans={trans} />));
const said = () => document.body.textContent!.trim();
const pass = (seconds: number) => act(() => jest.advanceTimersByTime(1000 * seconds + 5));

function hide(hidden: boolean): void {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  act(() => {
    document.dispatchEvent(new Event('visibilitychange'));
  });
}

test('the limit and its source are one line', () => {
  show(of('another server has one of two'));
  expect(document.querySelectorAll('p').length).toBe(1);
  expect(said()).toBe(
    'Your limit is 2 GPUs, set for namespace team-a by Helm. Your other servers have 1.'
  );
});

test('names are text, never markup', () => {
  show(of('waiting for the limit with nothing'));
  expect(document.querySelector('img')).toBeNull();
  expect(said()).toContain('set for group <img src=x onerror=alert(1)> by =cmd() on 3 May');
});

test('nothing is shown where no limits are in force', () => {
  show({ ...LOWERED, userLimit: null, conditions: [] });
  expect(document.body.innerHTML).toBe('<div></div>');
});

test('the page about limits is linked where it is configured, with and without a limit', () => {
  PageConfig.setOption('jupyterGpuLimits', '/hub/services/gpu/');
  for (const view of [
    of('within the limit'),
    LOWERED,
    { ...LOWERED, userLimit: null, conditions: [] }
  ]) {
    show(view);
    const link = document.querySelector('a')!;
    expect(link.getAttribute('href')).toBe('/hub/services/gpu/');
    expect(link.rel).toBe('noopener noreferrer');
    expect(link.textContent).toBe('More about your limit');
  }
});

test('the time until GPUs are taken back is counted down', () => {
  show(LOWERED);
  const time = document.querySelector('time')!;
  expect(document.querySelector('.jp-mod-warning')!.textContent).toContain(
    'This server has 3 GPUs: 1 GPU will be taken back'
  );
  expect(time.dateTime).toBe(new Date(1000 * AT).toISOString());
  expect(time.textContent).toMatch(/^Time left: 10 min, until \d\d:\d\d\.$/);
  pass(60);
  expect(time.textContent).toMatch(/^Time left: 9 min/);
  pass(480);
  expect(time.textContent).toMatch(/^Time left: 60 s/);
  pass(1);
  expect(time.textContent).toMatch(/^Time left: 59 s/);
  pass(59);
  expect(time.textContent).toBe('The time is over: it happens now.');
});

test('a hidden page does not wake up, and is right when it is shown', () => {
  hide(true);
  show(LOWERED);
  expect(jest.getTimerCount()).toBe(0);
  jest.setSystemTime(1000 * (AT - 30));
  hide(false);
  expect(document.querySelector('time')!.textContent).toMatch(/^Time left: 30 s/);
});

test('a limit that is raised again ends the countdown', () => {
  show(LOWERED);
  show(of('within the limit'));
  expect(said()).toBe('Your limit is 2 GPUs, set for group ml by root on 3 May.');
});

test('screen readers hear the news once, and once more in the last minute', () => {
  const heard: string[] = [];
  function Ear({ view }: { readonly view: IView | null }): null {
    const news = useLimitNews(view, trans);
    if (heard[heard.length - 1] !== news) {
      heard.push(news);
    }
    return null;
  }
  const hear = (view: IView | null) => act(() => root.render(<Ear view={view} />));
  hear(null);
  hear(LOWERED);
  pass(300);
  expect(heard.length).toBe(2);
  expect(heard[1]).toBe(LOWERED.conditions[0].message);
  pass(300);
  expect(heard[2]).toBe(`${heard[1]} Less than a minute is left.`);
  hear(of('within the limit'));
  expect(heard.slice(3)).toEqual(['']);
});
