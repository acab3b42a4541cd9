import { IShareUse } from '../src/api/sample';

/** A quarter of the GPU `GPU-1` that has done nothing yet, but for `known`. */
export function share(known: Partial<IShareUse> = {}): IShareUse {
  return {
    uuid: 'GPU-1',
    allocated: 250,
    effective: 250,
    guaranteed: 0,
    borrowed: 0,
    idle: 0,
    overrun: 0,
    switching: 0,
    waited: 0,
    throttled: 0,
    lost: 0,
    balance: 0,
    cap: 2_000_000,
    expires: null,
    sharing: 2,
    period: 100_000,
    busy: null,
    reason: '',
    memoryUsed: null,
    memoryLimit: null,
    ...known
  };
}
