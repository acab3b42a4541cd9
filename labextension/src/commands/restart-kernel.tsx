/** Restarts the kernel that still has a GPU open, after a confirmation. Loaded when it is used. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, type ISessionContext, showDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { Session } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Widget } from '@lumino/widgets';
import React from 'react';
import { IUser } from '../api/view';
import { userName } from '../words/sentence';

/** Ask, then restart the kernel of `user`. Throws if the server refuses. */
export async function restartKernel(
  app: JupyterFrontEnd,
  user: IUser & { readonly kernel: string },
  trans: TranslationBundle
): Promise<void> {
  const id = user.kernel;
  const sessions = await sessionsOf(app, id);
  const answer = await showDialog({
    title: trans.__('Restart the kernel of %1?', userName(user, trans)),
    body: <Question id={id} user={user} sessions={sessions} trans={trans} />,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Restart') })
    ]
  });
  if (!answer.button.accept) {
    return;
  }
  const open = contextOf(app, id);
  if (open) {
    await open.restartKernel();
    return;
  }
  // Not open in this tab: the notebook itself is informed by the server.
  const kernel = app.serviceManager.kernels.connectTo({ model: { id, name: '' } });
  try {
    await kernel.restart();
  } finally {
    kernel.dispose();
  }
}

interface IQuestionProps {
  readonly id: string;
  readonly user: IUser;
  readonly sessions: readonly Session.IModel[];
  readonly trans: TranslationBundle;
}

/** Everything that would be restarted: all that runs on the kernel, and the kernel itself. */
function Question({ id, user, sessions, trans }: IQuestionProps): React.JSX.Element {
  const kernel = sessions[0]?.kernel?.name;
  const all = sessions.length
    ? sessions.map(session => sessionName(session, trans))
    : user.notebook
      ? [user.notebook]
      : [trans.__('No notebook and no console, %1', userName(user, trans))];
  return (
    <div className="jp-gpu-Question">
      <ul>
        {all.map(name => (
          <li key={name}>
            <bdi>{name}</bdi>
          </li>
        ))}
        <li>
          <bdi>{kernel ? trans.__('Kernel %1, %2', kernel, id) : trans.__('Kernel %1', id)}</bdi>
        </li>
      </ul>
      <p>
        {trans.__(
          'What runs there is ended and its variables are lost. The GPU that it still has open is free then.'
        )}
      </p>
    </div>
  );
}

/** `"Notebook a/b.ipynb"`, `"Console 1, in a"`: the path of a console is made up. */
function sessionName({ name, path, type }: Session.IModel, trans: TranslationBundle): string {
  if (type === 'notebook') {
    return trans.__('Notebook %1', path);
  }
  if (type !== 'console') {
    return path;
  }
  return trans.__('%1, in %2', name || path, PathExt.dirname(path) || '/');
}

/** All that runs on the kernel `id`, notebooks first. */
async function sessionsOf(app: JupyterFrontEnd, id: string): Promise<Session.IModel[]> {
  const { sessions } = app.serviceManager;
  await sessions.refreshRunning().catch(() => undefined); // then the sessions known before are used
  return [...sessions.running()]
    .filter(session => session.kernel?.id === id)
    .sort((a, b) => Number(b.type === 'notebook') - Number(a.type === 'notebook'));
}

/** The session of an open document or console that runs on the kernel `id`. */
function contextOf(app: JupyterFrontEnd, id: string): ISessionContext | null {
  for (const widget of app.shell.widgets('main')) {
    const { sessionContext, context } = widget as Widget & {
      sessionContext?: ISessionContext;
      context?: { sessionContext?: ISessionContext };
    };
    const session = sessionContext ?? context?.sessionContext;
    if (session?.session?.kernel?.id === id) {
      return session;
    }
  }
  return null;
}
