/** Tokens of services for other extensions. */
import type { ServerConnection } from '@jupyterlab/services';
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';
import type { IRequest } from '../api/request';
import type { Connection } from '../api/stream';
import type { IView } from '../api/view';
import type { History } from '../history/history';

/** A failure; `explain` has the words for it. */
export interface IFailure {
  readonly error: Error;
  /** The request to send again, if that may help. */
  readonly request: IRequest | null;
}

/** The GPUs of this server, live. */
export interface IGpuModel extends IDisposable {
  /** The newest view, `null` before the first. */
  readonly view: IView | null;
  readonly connection: Connection;
  readonly history: History;
  /** The settings of calls to the server. */
  readonly serverSettings: ServerConnection.ISettings;
  /** Milli of the newest request that the server has not answered yet, else `null`. */
  readonly wanted: number | null;
  readonly failure: IFailure | null;
  /** Emitted when anything but the samples changed. */
  readonly changed: ISignal<IGpuModel, void>;
  /** Emitted when samples arrived. */
  readonly sampled: ISignal<IGpuModel, void>;
  /** Ask for GPUs; returns whether the server recorded it. `false`: see `failure`, or a newer request replaced it. */
  request(request: IRequest): Promise<boolean>;
  /** Send the failed request again. */
  retry(): void;
  /** Dismiss `failure`. */
  dismiss(): void;
  /** Try to connect now. */
  reconnect(): void;
  /** Receive samples until the result is disposed. */
  watch(): IDisposable;
  /** Whether samples are wanted. */
  readonly watched: boolean;
}

/** The model of this page. */
export const IGpuModel = new Token<IGpuModel>(
  'jupyter-gpu:IGpuModel',
  'The GPUs of this server, and requests for another number.'
);

/** The user's settings. */
export interface IGpuSettings {
  readonly showStatusBar: boolean;
  readonly showInToolbar: boolean;
  /** Show a notice when a wait for GPUs is over, and when one stops working. */
  readonly notify: boolean;
  /** Also on the desktop. */
  readonly notifyOnDesktop: boolean;
  /** Seconds. */
  readonly chartWindow: number;
  readonly tableInsteadOfCharts: boolean;
  readonly changed: ISignal<IGpuSettings, void>;
  /** Choose the table or the charts, and remember it. */
  showTable(table: boolean): void;
  /** Choose whether to show notices on the desktop, and remember it. */
  useDesktop(use: boolean): Promise<void>;
}

/** The settings of this extension, with defaults if nothing stores them. */
export const IGpuSettings = new Token<IGpuSettings>(
  'jupyter-gpu:IGpuSettings',
  'Settings of the GPU panel.'
);
