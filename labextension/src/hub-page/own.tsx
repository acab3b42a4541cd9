/** The visitor's own limit: who granted it, use, place in line, and the history of GPU-hours. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IMe, IPod } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { HoursChart } from '../hub-common/hours-chart';
import { Listing } from '../hub-common/listing';
import { amount, sourced } from '../hub-model/amount';
import { EXACT_POSITIONS } from '../words/quantity';
import { gpus } from '../words/sentence';
import { time } from './row';

/** Everything about the visitor. */
export function OwnLimit({ me }: { readonly me: IMe }): React.JSX.Element {
  const { trans } = usePage();
  return (
    <section aria-label={trans.__('Your GPUs')} className="gpu-Own">
      <dl>
        <dt>{trans.__('Your limit')}</dt>
        <dd>{sourced(me.limit, trans, true)}</dd>
        {me.inForce && me.inForce.value !== me.limit.value && (
          <>
            <dt>{trans.__('Your limit now')}</dt>
            <dd>
              {sourced(me.inForce, trans, true)}
              {me.until && ` ${trans.__('(until %1)', time(me.until, trans))}`}
            </dd>
          </>
        )}
        {me.guaranteed.value !== '0' && (
          <>
            <dt>{trans.__('Guaranteed')}</dt>
            <dd>{sourced(me.guaranteed, trans, true)}</dd>
          </>
        )}
        <dt>{trans.__('In use')}</dt>
        <dd>
          {gpus(me.used, trans)}
          {me.idle > 0 &&
            `; ${trans.__('idle, as no program uses them: %1', gpus(me.idle, trans))}`}
          {me.giveBackAt &&
            `; ${trans.__('what is above your limit is taken back at %1', time(me.giveBackAt, trans))}`}
        </dd>
        {me.waiting > 0 && (
          <>
            <dt>{trans.__('Waiting for')}</dt>
            <dd>{gpus(me.waiting, trans)}</dd>
          </>
        )}
      </dl>
      {me.pods.length > 0 && <Pods pods={me.pods} />}
      <h2 className="h5">{trans.__('History')}</h2>
      <HoursChart hours={me.hours} />
    </section>
  );
}

/** The servers and other pods of a user. */
export function Pods({ pods }: { readonly pods: readonly IPod[] }): React.JSX.Element {
  const { trans, machine } = usePage();
  return (
    <Listing
      className="table-sm w-auto"
      heads={[
        trans.__('Server'),
        trans.__('In use'),
        trans.__('Waiting'),
        trans.__('Place in line')
      ]}
    >
      {pods.map(pod => (
        <tr key={`${pod.namespace}/${pod.name}`}>
          <th scope="row">{serverName(pod, trans, machine)}</th>
          <td className="gpu-Number">{amountOf(pod, trans)}</td>
          <td className="gpu-Number">{gpus(pod.waiting, trans)}</td>
          <td className="gpu-Number">{place(pod, trans)}</td>
        </tr>
      ))}
    </Listing>
  );
}

function serverName(
  { server, namespace, name }: IPod,
  trans: TranslationBundle,
  machine: boolean
): string {
  if (server !== null) {
    return server || trans.__('your server');
  }
  return machine ? trans.__('server %1', name) : trans.__('pod %1 in %2', name, namespace);
}

function amountOf({ used, draining }: IPod, trans: TranslationBundle): string {
  return draining
    ? trans.__(
        '%1, of which %2 are being given back',
        gpus(used, trans),
        amount(`${draining}m`, trans)
      )
    : gpus(used, trans);
}

function place({ position }: IPod, trans: TranslationBundle): string {
  return position === null
    ? '–'
    : position > EXACT_POSITIONS
      ? trans.__('about %1', position)
      : String(position);
}
