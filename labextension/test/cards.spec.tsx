import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { IGpu } from '../src/api';
import { Cards } from '../src/cards';
import { History } from '../src/history';
import { IGpuModel } from '../src/tokens';
import { share } from './share';

/** The cards of one GPU of which there are `milli`, as the first picture shows them. */
function cards(milli: number): string {
  const history = new History(10);
  history.push({ time: 1, gpus: new Map(), shares: new Map([['GPU-1', share()]]) });
  const model = { history, sampled: new Signal({}) } as unknown as IGpuModel;
  const gpu: IGpu = {
    uuid: 'GPU-1',
    index: 0,
    model: 'Test 80GB',
    memory: 80 * 2 ** 30,
    simulated: true,
    health: '',
    milli,
    state: 'attached',
    users: []
  };
  const trans = nullTranslator.load('jupyter_gpu');
  return renderToStaticMarkup(<Cards model={model} gpus={[gpu]} window={60} trans={trans} />);
}

test('the card of a time share says what it does, the card of a whole GPU does not', () => {
  expect(cards(250)).toContain('Guaranteed slice');
  expect(cards(250)).toContain('A quarter, shared');
  expect(cards(1000)).not.toContain('jp-gpu-Share');
  expect(cards(1000)).toContain('Whole GPU, exclusive');
});
