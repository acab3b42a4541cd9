/** The bar of the cluster's GPUs: its parts in order, and its text. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ICluster } from '../hub-api/limits';
import { gpus, join } from '../words/sentence';

/** One part of the bar. */
export interface IPart {
  readonly key: 'owned' | 'shares' | 'draining' | 'unhealthy' | 'free';
  readonly label: string;
  readonly milli: number;
  /** Percent of the bar. */
  readonly width: number;
}

/** The parts that are not empty; what is free is always told. */
export function parts(cluster: ICluster, trans: TranslationBundle): readonly IPart[] {
  const labels: readonly (readonly [IPart['key'], string])[] = [
    ['owned', trans.__('in use')],
    ['shares', trans.__('in shares')],
    ['draining', trans.__('being given back')],
    ['unhealthy', trans.__('not working')],
    ['free', trans.__('free')]
  ];
  return labels
    .map(([key, label]) => ({
      key,
      label,
      milli: cluster[key],
      width: cluster.total ? (100 * cluster[key]) / cluster.total : 0
    }))
    .filter(part => part.milli || part.key === 'free');
}

/**
 * `"8 GPUs in the cluster: 4 GPUs in use, …"`, for screen readers and below the bar; `machine`: of one machine, without a
 * cluster.
 */
export function clusterText(cluster: ICluster, trans: TranslationBundle, machine = false): string {
  if (!cluster.total) {
    return machine
      ? trans.__('No GPU of this machine is known that notebooks can get.')
      : trans.__('The cluster has no GPUs that notebooks can get.');
  }
  const listed = parts(cluster, trans).map(part =>
    trans.__('%1 %2', gpus(part.milli, trans), part.label)
  );
  const words = [gpus(cluster.total, trans), join(listed, trans)];
  const text = machine
    ? trans.__('%1 in this machine: %2.', ...words)
    : trans.__('%1 in the cluster: %2.', ...words);
  return cluster.waiting
    ? trans.__('%1 People wait for %2 more.', text, gpus(cluster.waiting, trans))
    : text;
}
