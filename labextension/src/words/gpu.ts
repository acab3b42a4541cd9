/** Words of the cards and of the table. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IGuestUse, ILoad } from '../api/sample';
import { IGpu, IStranger, IUser } from '../api/view';
import { formatBytes, MILLI_PER_GPU } from './quantity';
import { join, strangerName, userName } from './sentence';

/** `"Whole GPU, exclusive"`, `"Whole GPU"`, `"A quarter, shared"`, `"30 %, shared"`; or how it is lent. */
export function share(
  { milli, strangers, guest, keeps }: Pick<IGpu, 'milli' | 'strangers' | 'guest' | 'keeps'>,
  trans: TranslationBundle
): string {
  if (guest) {
    return trans.__('Lent while others rest: may pause at any moment');
  }
  if (keeps) {
    return trans.__('Whole GPU, lent while it rests: keeps %1', formatBytes(keeps));
  }
  switch (milli) {
    case MILLI_PER_GPU:
      return strangers.length ? trans.__('Whole GPU') : trans.__('Whole GPU, exclusive');
    case 750:
      return trans.__('Three quarters, shared');
    case 500:
      return trans.__('A half, shared');
    case 250:
      return trans.__('A quarter, shared');
    case 125:
      return trans.__('An eighth, shared');
    default:
      return trans.__('%1 %, shared', milli / 10);
  }
}

/** The use that a guest makes of it: `"A guest has 40 % of the time and 12 GiB"`. */
export function guestUse({ busy, memory }: IGuestUse, trans: TranslationBundle): string {
  const bytes = formatBytes(memory);
  return trans.__('A guest has %1 % of the time and %2', Math.round(100 * busy), bytes);
}

/** The state in one or two words. */
export function state(gpu: Pick<IGpu, 'state' | 'parked' | 'returning'>, trans: TranslationBundle) {
  switch (gpu.state) {
    case 'attaching':
      return gpu.parked
        ? gpu.returning
          ? trans.__('Coming back')
          : trans.__('Parked')
        : trans.__('Attaching');
    case 'attached':
      return trans.__('Attached');
    case 'draining':
      return trans.__('Giving back');
    case 'unhealthy':
      return trans.__('Not working');
  }
}

/** `"42 %"`, or `"–"` if the device does not report it. */
export function percent(load: ILoad, trans: TranslationBundle): string {
  return load.utilisation === null ? '–' : trans.__('%1 %', Math.round(load.utilisation));
}

/** `"12 of 80 GiB"`, or `"80 GiB"` if the device does not report how much is used. */
export function memory(load: ILoad, gpu: Pick<IGpu, 'memory'>, trans: TranslationBundle): string {
  const all = formatBytes(gpu.memory);
  if (load.memory === null) {
    return all;
  }
  const [used, unit] = formatBytes(load.memory).split(' ');
  return load.memory === 0 || all.endsWith(` ${unit}`)
    ? trans.__('%1 of %2', used, all)
    : trans.__('%1 of %2', `${used} ${unit}`, all);
}

/** The programs that have the GPU open: `"Open in analysis.ipynb and python (process 12)"`, `"Not open anywhere"`. */
export function users(users: readonly IUser[], trans: TranslationBundle): string {
  const names = users.map(user =>
    user.foreign
      ? trans.__('%1, outside this server', userName(user, trans))
      : userName(user, trans)
  );
  return names.length
    ? trans.__('Open in %1', join([...new Set(names)], trans))
    : trans.__('Not open anywhere');
}

/**
 * For how long the GPU has been open without anything running on it: `"Idle for 12 min: nothing runs on it"`; empty: it does
 * not rest. The twin of `idle_for` in `jupyter_gpu/model/use_class.py`; `now` is in seconds since 1970.
 */
export function idle(
  { idleSince }: Pick<IGpu, 'idleSince'>,
  now: number,
  trans: TranslationBundle
): string {
  if (idleSince === null) {
    return '';
  }
  const minutes = Math.max(1, Math.floor((now - idleSince) / 60));
  const time =
    minutes < 60
      ? trans.__('%1 min', minutes)
      : trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
  return trans.__('Idle for %1: nothing runs on it', time);
}

/** Programs that use the GPU without having been given it, as a line of its own. */
export function strangers(found: readonly IStranger[], trans: TranslationBundle): string {
  const names = join([...new Set(found.map(one => strangerName(one, trans)))], trans);
  return trans.__('Also used by %1, which did not get it from jupyter-gpu', names);
}
