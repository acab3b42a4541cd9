/** The page: the table for those who may see it, else the visitor's own limit; one live connection for all parts. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect } from 'react';
import { Api } from '../hub-api/call';
import { versionOf } from '../hub-api/changes';
import { readMe } from '../hub-api/limits';
import { Context, IContext } from '../hub-common/context';
import { Problem } from '../hub-common/messages';
import { useResource } from '../hub-common/resource';
import { AdminPage } from './admin';
import { OwnLimit } from './own';
import { useChanges } from './use-changes';

/** Properties of the page. */
export interface IAppProps {
  readonly api: Api;
  readonly trans: TranslationBundle;
  /** Called once there is something to show. */
  readonly onReady: () => void;
}

/** Everything below the heading. */
export function App({ api, trans, onReady }: IAppProps): React.JSX.Element | null {
  const { counts, live } = useChanges(api);
  const me = useResource(api, 'me', readMe, versionOf(counts, 'me'));
  const ready = Boolean(me.value);

  useEffect(() => {
    if (ready) {
      onReady();
    }
  }, [ready, onReady]);

  if (!me.value) {
    return me.error ? <Problem error={me.error} trans={trans} /> : null;
  }
  const context: IContext = { api, trans, counts, machine: me.value.machine };
  const trouble =
    me.value.problem ??
    (live ? '' : trans.__('Not connected now; this may be out of date. Trying again…'));
  return (
    <Context.Provider value={context}>
      <div role="status">
        {trouble && <p className="alert alert-warning">{trouble}</p>}
        {me.error && <Problem error={me.error} trans={trans} />}
      </div>
      {me.value.mayRead ? <AdminPage me={me.value} /> : <OwnLimit me={me.value} />}
    </Context.Provider>
  );
}
