/** The context that all parts of the page use. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useContext } from 'react';
import { Api } from '../hub-api/call';
import { Counts } from '../hub-api/changes';

/** The service, the language, and how often each table has changed. */
export interface IContext {
  readonly api: Api;
  readonly trans: TranslationBundle;
  readonly counts: Counts;
  /** Whether the GPUs are those of one machine, without a cluster. */
  readonly machine: boolean;
}

/** Set by the page. */
export const Context = React.createContext<IContext | null>(null);

/** The context of a part of the page. */
export function usePage(): IContext {
  return useContext(Context)!;
}
