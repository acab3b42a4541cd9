/** Details of a GPU: one line on its card, which opens to limits, rates and memory by program. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useCallback, useEffect, useState } from 'react';
import { Details, IGpuDetails, INamedUse, IOthers, IRates, parseDetails } from '../api/details';
import { ILoad } from '../api/sample';
import { IGpu } from '../api/view';
import { IAnswer, usePolled } from '../common/polling';
import { IGpuModel } from '../model/tokens';
import { formatBytes } from '../words/quantity';
import { userName } from '../words/sentence';

/** In milliseconds. Slow measurements of the driver start only after the first request. */
const PACE = { pause: 3000, second: 1000 };

/** The GPUs whose details are open, and what is known about them. */
export interface IOpenDetails extends IAnswer<Details> {
  readonly setOpen: (uuid: string, on: boolean) => void;
}

/** Poll the server while the details of at least one GPU are open. */
export function useOpenDetails(model: IGpuModel): IOpenDetails {
  const [open, setUuids] = useState<ReadonlySet<string>>(new Set());
  const setOpen = useCallback((uuid: string, on: boolean) => {
    setUuids(before => new Set([...before].filter(one => one !== uuid).concat(on ? uuid : [])));
  }, []);
  return { ...usePolled(model, 'details', parseDetails, open.size > 0, PACE), setOpen };
}

/** Properties of the line. */
export interface IDetailsLineProps {
  readonly gpu: IGpu;
  readonly load: ILoad;
  readonly details: IOpenDetails;
  readonly trans: TranslationBundle;
  /** Name of the line; a card already shows which GPU it is. */
  readonly name?: string;
}

/** The line with its details. */
export function DetailsLine({
  gpu,
  load,
  details,
  trans,
  name
}: IDetailsLineProps): React.JSX.Element {
  const { setOpen } = details;
  useEffect(() => () => setOpen(gpu.uuid, false), [setOpen, gpu.uuid]);
  const [shown, setShown] = useState(false);
  return (
    <details
      className="jp-gpu-Details"
      onToggle={event => {
        const on = event.currentTarget.open;
        setShown(on);
        setOpen(gpu.uuid, on);
      }}
    >
      <summary aria-label={trans.__('Details of GPU %1: %2', gpu.index, brief(load, trans))}>
        <span>{name ?? trans.__('Details')}</span>
        <span>{brief(load, trans)}</span>
      </summary>
      {shown && <Facts gpu={gpu} load={load} details={details} trans={trans} />}
    </details>
  );
}

function Facts({ gpu, load, details, trans }: IDetailsLineProps): React.JSX.Element {
  const found = details.known?.get(gpu.uuid);
  const rows = facts(load, found, trans);
  return (
    <>
      {rows.length > 0 && (
        <dl>
          {rows.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {found?.processes && <Programs gpu={gpu} found={found} trans={trans} />}
      {!found && (
        <p>
          {details.failure
            ? trans.__('The server did not answer; it is asked again.')
            : details.known
              ? trans.__('This GPU tells nothing more, or not yet.')
              : trans.__('Asking the GPU…')}
        </p>
      )}
    </>
  );
}

interface IProgramsProps {
  readonly gpu: IGpu;
  readonly found: IGpuDetails;
  readonly trans: TranslationBundle;
}

function Programs({ gpu, found, trans }: IProgramsProps): React.JSX.Element {
  const uses = [...(found.processes ?? [])].sort((a, b) => (b.memory ?? 0) - (a.memory ?? 0));
  if (uses.length === 0 && !found.others) {
    return <p>{trans.__('No program has memory on it.')}</p>;
  }
  return (
    <table>
      <caption>{trans.__('Memory of GPU %1 by program', gpu.index)}</caption>
      <tbody>
        {uses.map(use => (
          <tr key={`${use.pid} ${use.command}`}>
            <th scope="row">{program(use, gpu, trans)}</th>
            <td>{use.memory === null ? '–' : formatBytes(use.memory)}</td>
          </tr>
        ))}
        {found.others && (
          <tr>
            <th scope="row">{strangers(found.others, trans)}</th>
            <td>{found.others.memory === null ? '–' : formatBytes(found.others.memory)}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

/** Name of a program: its notebook if it has one. */
function program(use: INamedUse, gpu: IGpu, trans: TranslationBundle): string {
  const user = use.pid ? gpu.users.find(one => one.pid === use.pid) : undefined;
  return userName(
    user ?? { pid: use.pid, command: use.command, foreign: false, kernel: null, notebook: null },
    trans
  );
}

function strangers({ processes }: IOthers, trans: TranslationBundle): string {
  return processes === 1
    ? trans.__('1 program outside this server')
    : trans.__('%1 programs outside this server', processes);
}

/** `"62 °C · 210 W"`; empty if the device reports neither. */
export function brief({ temperature, power }: ILoad, trans: TranslationBundle): string {
  return [
    ...(temperature === undefined ? [] : [celsius(temperature, trans)]),
    ...(power === undefined ? [] : [watts(power, trans)])
  ].join(' · ');
}

/** Rows of the known values. */
export function facts(
  { temperature, power }: ILoad,
  found: IGpuDetails | undefined,
  trans: TranslationBundle
): [string, string][] {
  const rows: [string, string][] = [];
  if (temperature !== undefined) {
    rows.push([trans.__('Temperature'), warmth(temperature, found?.slowdown ?? null, trans)]);
  }
  if (power !== undefined) {
    const limit = found?.powerLimit ?? null;
    rows.push([
      trans.__('Power'),
      limit === null
        ? watts(power, trans)
        : trans.__('%1 of %2', Math.round(power), watts(limit, trans))
    ]);
  }
  if (found?.pcie) {
    rows.push([trans.__('PCIe'), traffic(found.pcie, trans)]);
  }
  if (found?.nvlink) {
    rows.push([trans.__('NVLink'), traffic(found.nvlink, trans)]);
  }
  return rows;
}

function warmth(now: number, slowdown: number | null, trans: TranslationBundle): string {
  const shown = celsius(now, trans);
  if (slowdown === null) {
    return shown;
  }
  return now >= slowdown
    ? trans.__('%1: too hot, it makes itself slower', shown)
    : trans.__('%1, slows down at %2', shown, celsius(slowdown, trans));
}

const celsius = (value: number, trans: TranslationBundle) => trans.__('%1 °C', Math.round(value));
const watts = (value: number, trans: TranslationBundle) => trans.__('%1 W', Math.round(value));

const traffic = ({ received, sent }: IRates, trans: TranslationBundle) =>
  trans.__('%1 in, %2 out', rate(received, trans), rate(sent, trans));

/** Bytes per second in decimal units, as link speeds are given: `"1.2 GB/s"`. */
export function rate(bytes: number, trans: TranslationBundle): string {
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
  const unit = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  const amount = bytes / 1000 ** unit;
  return trans.__(
    '%1 %2',
    amount < 10 ? Number(amount.toFixed(1)) : Math.round(amount),
    units[unit]
  );
}
