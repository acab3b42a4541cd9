import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { IView, IWorker, parseView } from '../../src/api/view';
import Gpus from '../../src/gpus/gpus';
import { RemoteCards } from '../../src/gpus/remote-card';
import { History } from '../../src/history/history';
import { IGpuModel, IGpuSettings } from '../../src/model/tokens';
import { look, stage, toCome } from '../../src/words/remote';
import { golden } from '../golden';

jest.mock('../../style/gpus.css', () => ({})); // a stylesheet is no JavaScript

const trans = nullTranslator.load('jupyter_gpu');

/** The view of a golden case. */
function view(name: string): IView {
  return parseView(golden('views').find(c => c.name === name)!.view, 'view');
}

/** A model whose newest sample has this utilisation and memory of a GPU on another node. */
function model(utilisation: number | null = null, memory: number | null = null): IGpuModel {
  const history = new History(10);
  history.push({ time: 1, gpus: new Map([['GPU-b100', { utilisation, memory }]]) });
  return { history, sampled: new Signal({}) } as unknown as IGpuModel;
}

/** The text of the cards, without tags. */
function text(workers: readonly IWorker[], of = model()): string {
  const html = renderToStaticMarkup(<RemoteCards model={of} workers={workers} trans={trans} />);
  return html.replace(/<[^>]*>/g, '|').replace(/\|+/g, '|');
}

test('a card has node, state, distance, GPUs and what went over the network', () => {
  const { workers } = view('ready, one here and one on another node');
  expect(text(workers)).toBe(
    '|node2|Attached|Other node, same switch|GPU 0|Whole GPU, exclusive|' +
      '700 MiB sent there and back · answers in 0.2 ms|'
  );
  expect(text(workers, model(41.6))).toContain('Whole GPU, exclusive · 42 %');
  const kinds = [{ model: 'NVIDIA H100', memory: 85899345920, gate: false }];
  const known = workers.map(worker => ({ ...worker, kinds }));
  expect(text(known)).toContain('|GPU 0|Whole GPU, exclusive|NVIDIA H100|80 GiB|');
  expect(text(known, model(41.6, 2 ** 34))).toContain('|NVIDIA H100|16 of 80 GiB|');
});

test.each([
  ['attaching, a worker starts', '|node2|Starting|Other node, same switch|1 GPU to come|'],
  [
    'attaching one here while a worker starts',
    '|node2|Starting|Other node, same switch|1 GPU to come|Unschedulable: 0/3 nodes are available.|'
  ],
  [
    'waiting, a worker is refused',
    '|node2|Refused|Other node, same switch|1 GPU to come|ImagePullBackOff: Back-off pulling image|'
  ],
  [
    'ready, a worker is kept that has nothing any more',
    '|node2|Kept for a while|Other node, same switch|'
  ]
])('%s', (name, shown) => {
  expect(text(view(name).workers)).toBe(shown);
});

test('every stage has its words and its look', () => {
  const [worker] = view('ready, one here and one on another node').workers;
  const one = (change: Partial<IWorker>) => {
    const changed = { ...worker, ...change };
    return [stage(changed, trans), look(changed), toCome(changed, trans)];
  };
  expect(one({})).toEqual(['Attached', 'attached', '']);
  expect(one({ milli: 1500 })).toEqual(['Attaching', 'attaching', '0.5 GPU to come']);
  expect(one({ milli: 0 })).toEqual(['Giving back', 'draining', '']);
  expect(one({ stage: 'pulling' })).toEqual(['Pulling the image', 'attaching', '']);
  expect(one({ stage: 'connecting' })).toEqual(['Connecting', 'attaching', '']);
  expect(one({ stage: 'failed' })).toEqual(['Failed', 'unhealthy', '']);
});

test('a GPU that stopped working says why, and its worker that it does not work', () => {
  const { workers } = view('degraded, a GPU of another node stopped working');
  expect(text(workers)).toBe(
    '|node2|Not working|Other node, same switch|GPU 0|Whole GPU, exclusive|' +
      'Xid 79: it fell off the bus.|700 MiB sent there and back · answers in 0.2 ms|'
  );
  expect(look(workers[0])).toBe('unhealthy');
});

test('the section shows them beside own GPUs, also without one', () => {
  const settings = { tableInsteadOfCharts: false, chartWindow: 60 } as IGpuSettings;
  const shown = (name: string) =>
    renderToStaticMarkup(
      <Gpus model={model()} settings={settings} view={view(name)} trans={trans} />
    );
  const both = shown('ready, one here and one on another node');
  expect(both.match(/<ul/g)).toHaveLength(2);
  expect(both).toContain('aria-label="Your GPUs on other nodes"');
  const away = shown('ready, all on two other nodes');
  expect(away.match(/<ul/g)).toHaveLength(1);
  expect(away).toContain('Other node, other switch');
  expect(shown('ready with two of four')).not.toContain('other nodes');
});
