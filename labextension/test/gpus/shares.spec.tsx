/** @jest-environment jsdom */
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { IShareUse } from '../../src/api/sample';
import { IGpu } from '../../src/api/view';
import { useFrames } from '../../src/common/react';
import { Table } from '../../src/gpus/cards';
import { ShareCard } from '../../src/gpus/shares';
import { History } from '../../src/history/history';
import { IGpuModel } from '../../src/model/tokens';
import { seconds } from '../../src/words/share';
import { share } from '../share';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

const trans = nullTranslator.load('jupyter_gpu');
const GPU: IGpu = {
  uuid: 'GPU-1',
  index: 3,
  model: 'Test 80GB',
  memory: 80 * 2 ** 30,
  simulated: true,
  health: '',
  milli: 250,
  state: 'attached',
  users: [],
  strangers: [],
  idleSince: null
};

let root: Root;
let history: History;
let sampled: Signal<IGpuModel, void>;
let model: IGpuModel;

beforeEach(() => {
  document.body.innerHTML = '<div></div>';
  root = createRoot(document.body.firstElementChild!);
  history = new History(100);
  const bare = { history } as { history: History; sampled: Signal<IGpuModel, void> };
  model = bare as unknown as IGpuModel;
  sampled = new Signal<IGpuModel, void>(model);
  bare.sampled = sampled;
});

afterEach(() => act(() => root.unmount()));

const push = (time: number, ...shares: IShareUse[]) =>
  history.push({
    time,
    gpus: new Map([['GPU-1', { utilisation: 50, memory: 1 }]]),
    shares: new Map(shares.map(one => [one.uuid, one]))
  });

/** The share on a card, rendered as the cards are. */
function Host(): React.JSX.Element {
  useFrames(sampled);
  return <ShareCard gpu={GPU} history={history} window={60} trans={trans} />;
}

const show = () => act(() => root.render(<Host />));
const showTable = (gpu = GPU) =>
  act(() => root.render(<Table model={model} gpus={[gpu]} window={60} trans={trans} />));

const query = (selector: string) => document.querySelector<HTMLElement>(selector)!;
const text = (selector: string) => query(selector).textContent;

/** Half a second of its slice, a tenth of bank and idle time each, a fifth waiting. */
function busy(known: Partial<IShareUse> = {}): void {
  push(1, share());
  const times = { guaranteed: 400_000, overrun: 100_000, borrowed: 100_000, idle: 100_000 };
  push(2, share({ ...times, waited: 200_000, ...known }));
}

test('the picture of the time has a description for screen readers', () => {
  busy();
  show();
  const area = query('.jp-gpu-Share-area');
  expect(area.getAttribute('role')).toBe('img');
  expect(area.getAttribute('aria-label')).toBe(
    'Time of GPU 3 over time, now: Guaranteed slice 50 %, From the bank 10 %, ' +
      'From idle time 10 %, Waiting 20 %. Slice: 25 % of the GPU'
  );
  for (const layer of ['guaranteed', 'borrowed', 'idle', 'waiting']) {
    expect(area.querySelector(`:scope > path[data-layer=${layer}]`)!.getAttribute('d')).not.toBe(
      ''
    );
  }
  expect(area.querySelector('.jp-gpu-Share-line')!.getAttribute('d')).toMatch(/^M.*H240$/);
});

test('each layer has an existing pattern and its name, besides its colour', () => {
  busy();
  show();
  const fills = [...document.querySelectorAll('.jp-gpu-Share [fill]')].map(node =>
    node.getAttribute('fill')!.slice(5, -1)
  );
  expect(fills.length).toBe(8);
  const marks = fills.map(id => document.getElementById(id)!.querySelector('path')!.outerHTML);
  expect(new Set(marks).size).toBe(4);
  const ids = [...document.querySelectorAll('pattern')].map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(
    [...document.querySelectorAll('.jp-gpu-Share-legend li')].map(li => li.textContent)
  ).toEqual(['Guaranteed slice50 %', 'From the bank10 %', 'From idle time10 %', 'Waiting20 %']);
});

test('the bank is a meter in seconds, with its expiry', () => {
  busy({ balance: 500_000, expires: 17_000_000 });
  show();
  const meter = query('[role=meter]');
  expect(meter.getAttribute('aria-valuenow')).toBe('0.5');
  expect(meter.getAttribute('aria-valuemin')).toBe('0');
  expect(meter.getAttribute('aria-valuemax')).toBe('2');
  expect(meter.getAttribute('aria-valuetext')).toBe('500 ms of 2 s, the next expires in 17 s');
  expect(meter.getAttribute('aria-label')).toBe('Bank: GPU time saved');
  expect((meter.firstElementChild as HTMLElement).style.width).toBe('25%');
  expect(text('.jp-gpu-Share-bank p')).toBe('Bank: 500 ms of 2 s, the next expires in 17 s');
});

test('an empty bank, or one above a lowered cap, is still a meter', () => {
  busy({ cap: 0 });
  show();
  expect((query('[role=meter]').firstElementChild as HTMLElement).style.width).toBe('0%');
  push(3, share({ balance: 3_000_000 }));
  show();
  expect(query('[role=meter]').getAttribute('aria-valuenow')).toBe('2');
  expect((query('[role=meter]').firstElementChild as HTMLElement).style.width).toBe('100%');
});

test.each([
  [0, null, 'Nobody else shares this GPU'],
  [1, null, 'Shared with 1 other'],
  [3, 0.934, 'Shared with 3 others, the GPU is 93 % busy']
])('shows the number of neighbours, never their names: %s', (sharing, part, words) => {
  busy({ sharing, busy: part });
  show();
  expect(text('.jp-gpu-Share')).toContain(words);
});

test('lists adjustments with reasons, newest first, and the current slice', () => {
  push(1, share());
  push(2, share({ effective: 400, reason: 'Another share lends it.' }));
  push(3, share({ effective: 250, reason: 'Given back.' }));
  push(4, share({ effective: 300, reason: 'Another share lends it.' }));
  show();
  const items = [...document.querySelectorAll('.jp-gpu-Share-adjustments li')];
  expect(items.map(item => item.textContent!.replace(/^.*? (?=\d+ % →)/, ''))).toEqual([
    '25 % → 30 %: Another share lends it.',
    '40 % → 25 %: Given back.',
    '25 % → 40 %: Another share lends it.'
  ]);
  expect(items[0].querySelector('time')!.dateTime).toBe('1970-01-01T00:00:04.000Z');
  expect(text('.jp-gpu-Share-slice')).toBe('Slice: 30 % of the GPU now, 25 % allocated');
});

test('a reason older than the page is shown as text', () => {
  push(1, share({ effective: 400, reason: '<b>lent</b>' }));
  show();
  expect(text('.jp-gpu-Share-reason')).toBe('<b>lent</b>');
  expect(document.querySelector('.jp-gpu-Share-adjustments')).toBeNull();
});

test('the table has the same values, and opens by keyboard', () => {
  busy({ throttled: 100_000, memoryUsed: 2 ** 30, memoryLimit: 20 * 2 ** 30, reason: 'Lent.' });
  show();
  expect(query('.jp-gpu-Share details > summary').textContent).toBe('As a table');
  const rows = [...document.querySelectorAll('.jp-gpu-Share details tr')].map(row => [
    row.querySelector('th[scope=row]')!.textContent,
    row.querySelector('td')!.textContent
  ]);
  expect(rows).toEqual([
    ['Guaranteed slice', '50 % now, 500 ms in all'],
    ['From the bank', '10 % now, 100 ms in all'],
    ['From idle time', '10 % now, 100 ms in all'],
    ['Waiting', '20 % now, 200 ms in all'],
    ['Throttled', '10 % now, 100 ms in all'],
    ['Slice', '25 % of the GPU'],
    ['Bank', '0 s of 2 s'],
    ['Neighbours', 'Shared with 2 others'],
    ['Memory', '1 GiB of 20 GiB'],
    ['Reason', 'Lent.']
  ]);
});

test('the table of all GPUs includes shares', () => {
  busy();
  showTable();
  expect(text('.jp-gpu-Table .jp-gpu-Share-table caption')).toBe('Your time share of GPU 3');
});

test('the first sample says nothing about the time before', () => {
  push(1, share({ guaranteed: 5_000_000, memoryUsed: 2 ** 30 }));
  show();
  expect(text('.jp-gpu-Share-legend li')).toBe('Guaranteed slice–');
  expect(text('.jp-gpu-Share details td')).toBe('– now, 5 s in all');
});

test('shows nothing for a whole GPU or without data', () => {
  show();
  expect(query('.jp-gpu-Share')).toBeNull();
  showTable();
  expect(query('.jp-gpu-Share-table')).toBeNull();
  busy();
  showTable({ ...GPU, milli: 1000 });
  expect(query('.jp-gpu-Share-table')).toBeNull();
});

test.each([
  [false, 100],
  [true, 1000]
])(
  'renders at most ten times a second, once with less motion (%s), never without changes',
  (calm, pause) => {
    jest.useFakeTimers();
    window.matchMedia = media => ({ matches: calm, media }) as MediaQueryList;
    const pass = (milliseconds: number) => act(() => jest.advanceTimersByTime(milliseconds));
    push(1, share());
    show();
    pass(20); // the first picture
    expect(jest.getTimerCount()).toBe(0);
    push(2, share({ balance: 1_000_000 }));
    act(() => sampled.emit());
    pass(pause - 40);
    expect(text('.jp-gpu-Share-bank p')).toBe('Bank: 0 s of 2 s');
    pass(60);
    expect(text('.jp-gpu-Share-bank p')).toBe('Bank: 1 s of 2 s');
    pass(5000);
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
  }
);

test.each([
  [0, '0 s'],
  [12, '0.012 ms'],
  [3100, '3.1 ms'],
  [999_600, '1 s'],
  [17_040_000, '17 s'],
  [59_960_000, '1 min 0 s'],
  [200e6, '3 min 20 s'],
  [10_861e6, '3 h 1 min']
])('%s µs as %s', (amount, words) => {
  expect(seconds(amount, trans)).toBe(words);
});
