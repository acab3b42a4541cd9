import { nullTranslator } from '@jupyterlab/translation';
import { actions } from '../../src/amount/actions';
import { IGpu, IView, parseView } from '../../src/api/view';
import { view } from '../server';

const trans = nullTranslator.load('jupyter_gpu');

const now = (
  phase: string,
  amounts: Partial<IView['amounts']>,
  gpus: Partial<IGpu>[] = [],
  more: Record<string, unknown> = {}
): IView =>
  parseView(
    view({
      phase,
      amounts: { requested: 0, allocated: 0, attached: 0, draining: 0, ...amounts },
      requested: { generation: 7, milli: amounts.requested ?? 0 },
      gpus: gpus.map((gpu, i) => ({
        uuid: `GPU-${i}`,
        index: i,
        model: 'H100',
        memory: 1,
        milli: 1000,
        state: 'attached',
        users: [],
        strangers: [],
        idleSince: null,
        ...gpu
      })),
      ...more
    }),
    'view'
  );

const user = (more: object) => ({
  pid: 5,
  command: 'python',
  foreign: false,
  kernel: null,
  notebook: null,
  ...more
});

const labels = (of: IView) => actions(of, trans).map(action => action.label);
const requests = (of: IView) =>
  actions(of, trans).map(action => (action.kind === 'request' ? action.request : null));

test('there is no action without GPUs', () => {
  expect(labels(now('Idle', {}))).toEqual([]);
});

test('attached GPUs can be given back', () => {
  const of = now('Ready', { requested: 2000, allocated: 2000, attached: 2000 });
  expect(labels(of)).toEqual(['Release all']);
  expect(requests(of)).toEqual([{ milli: 0, forget: true }]);
});

test('a wait can be stopped, based on the request that the button refers to', () => {
  const of = now('Waiting', { requested: 2000 });
  expect(labels(of)).toEqual(['Stop waiting']);
  expect(requests(of)).toEqual([{ milli: 0, generation: 7, forget: true }]);
});

test('a partial grant can be kept; the server keeps the other options', () => {
  const requested = { generation: 9, milli: 3000, each: 500, model: ['H100'] };
  const of = now('Waiting', { requested: 3000, allocated: 1000, attached: 1000 }, [], {
    requested
  });
  expect(labels(of)).toEqual(['Keep 1 GPU', 'Release all']);
  expect(requests(of)[0]).toEqual({ milli: 1000, generation: 9 });
});

test('while a worker cannot start, the rest can be kept', () => {
  const amounts = { requested: 3000, allocated: 3000, attached: 1000 };
  expect(labels(now('Waiting', amounts))[0]).toBe('Keep 1 GPU');
  const back = { requested: 3000, allocated: 1000, attached: 2000 };
  expect(labels(now('Waiting', back))[0]).toBe('Keep 1 GPU');
});

test('a refused request can be withdrawn, keeping what is attached', () => {
  expect(labels(now('Refused', { requested: 9000 }))).toEqual(['Withdraw']);
  const partly = now('Refused', { requested: 9000, allocated: 2000, attached: 2000 });
  expect(labels(partly)[0]).toBe('Keep 2 GPUs');
  expect(requests(partly)[0]).toMatchObject({ milli: 2000, forget: true });
});

test('a kernel that still has a GPU open can be restarted, listed once, in every state', () => {
  const held = user({ kernel: 'k1', notebook: 'work/analysis.ipynb' });
  const gpus = [
    { users: [user({ kernel: 'k2', notebook: 'other.ipynb' })] },
    { state: 'draining' as const, users: [held, user({ pid: 6 })] },
    { state: 'draining' as const, users: [held] }
  ];
  for (const phase of ['Releasing', 'Ready', 'Waiting', 'Attaching', 'Pending']) {
    const of = now(
      phase,
      { requested: 1000, allocated: 1000, attached: 1000, draining: 2000 },
      gpus
    );
    expect(labels(of).filter(label => label.startsWith('Restart'))).toEqual([
      'Restart kernel of analysis.ipynb…'
    ]);
  }
});

test('processes that are no kernel of this server cannot be restarted', () => {
  const users = [user({}), user({ foreign: true, kernel: 'k1' })];
  const of = now('Releasing', { draining: 1000 }, [{ state: 'draining', users }]);
  expect(labels(of)).toEqual(['Keep 1 GPU after all']);
  expect(requests(of)[0]).toMatchObject({ milli: 1000, generation: 7 });
});

test('undoing a shrink is not offered beyond the limit', () => {
  const of = now('Releasing', { allocated: 1000, attached: 1000, draining: 1000 }, [], {
    limit: 1000
  });
  expect(labels(of)).toEqual(['Release all']);
});

test('failed GPUs can be given back while working ones stay', () => {
  const gpus = [{}, { state: 'unhealthy' as const }, { milli: 500, state: 'attaching' as const }];
  const of = now('Degraded', { requested: 2500, allocated: 2500, attached: 2500 }, gpus);
  expect(labels(of)).toEqual(['Give it back', 'Release all']);
  expect(requests(of)[0]?.milli).toBe(1500);
});

test('a request that waits for the limit can be lowered to what is there', () => {
  const limited = { reason: 'LimitExceeded' };
  const some = now('Waiting', { requested: 3000, allocated: 2000, attached: 2000 }, [], limited);
  expect(labels(some)).toEqual(['Keep 2 GPUs', 'Release all']);
  expect(requests(some)[0]).toEqual({ milli: 2000, generation: 7 });
  const none = now('Waiting', { requested: 3000 }, [], limited);
  expect(labels(none)).toEqual(['Stop waiting']);
  expect(requests(none)).toEqual([{ milli: 0, generation: 7, forget: true }]);
  expect(actions(none, trans)[0].title).toBe('Ask for no more than your limit allows now');
});
