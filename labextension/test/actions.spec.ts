import { nullTranslator } from '@jupyterlab/translation';
import { actions } from '../src/actions';
import { IGpu, IView, parseView } from '../src/api';
import { view } from './server';

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
const wishes = (of: IView) =>
  actions(of, trans).map(action => (action.kind === 'wish' ? action.wish : null));

test('nothing to do where nothing is', () => {
  expect(labels(now('Idle', {}))).toEqual([]);
});

test('what is attached can be given back', () => {
  const of = now('Ready', { requested: 2000, allocated: 2000, attached: 2000 });
  expect(labels(of)).toEqual(['Release all']);
  expect(wishes(of)).toEqual([{ milli: 0, forget: true }]);
});

test('who waits can stop, based on the wish that the button is about', () => {
  const of = now('Waiting', { requested: 2000 });
  expect(labels(of)).toEqual(['Stop waiting']);
  expect(wishes(of)).toEqual([{ milli: 0, generation: 7, forget: true }]);
});

test('who has a part can keep it; what else was asked for is the server’s to keep', () => {
  const requested = { generation: 9, milli: 3000, each: 500, model: ['H100'] };
  const of = now('Waiting', { requested: 3000, allocated: 1000, attached: 1000 }, [], {
    requested
  });
  expect(labels(of)).toEqual(['Keep 1 GPU', 'Release all']);
  expect(wishes(of)[0]).toEqual({ milli: 1000, generation: 9 });
});

test('a refused wish can be withdrawn, and what is there kept', () => {
  expect(labels(now('Refused', { requested: 9000 }))).toEqual(['Withdraw']);
  const partly = now('Refused', { requested: 9000, allocated: 2000, attached: 2000 });
  expect(labels(partly)[0]).toBe('Keep 2 GPUs');
  expect(wishes(partly)[0]).toMatchObject({ milli: 2000, forget: true });
});

test('the kernel that still has a GPU open can be restarted, once, whatever else is going on', () => {
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

test('processes that are no kernel of ours cannot be restarted', () => {
  const users = [user({}), user({ foreign: true, kernel: 'k1' })];
  const of = now('Releasing', { draining: 1000 }, [{ state: 'draining', users }]);
  expect(labels(of)).toEqual(['Keep 1 GPU after all']);
  expect(wishes(of)[0]).toMatchObject({ milli: 1000, generation: 7 });
});

test('a shrink is not offered to be taken back beyond the limit', () => {
  const of = now('Releasing', { allocated: 1000, attached: 1000, draining: 1000 }, [], {
    limit: 1000
  });
  expect(labels(of)).toEqual(['Release all']);
});

test('broken GPUs can be given back: what works stays', () => {
  const gpus = [{}, { state: 'unhealthy' as const }, { milli: 500, state: 'attaching' as const }];
  const of = now('Degraded', { requested: 2500, allocated: 2500, attached: 2500 }, gpus);
  expect(labels(of)).toEqual(['Give it back', 'Release all']);
  expect(wishes(of)[0]?.milli).toBe(1500);
});
