/** Restarting the kernel that still has a GPU open, with a question first. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, type ISessionContext, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Widget } from '@lumino/widgets';

/** Ask, then restart the kernel `id`, which `name` (a notebook) runs on. Throws if the server refuses. */
export async function restartKernel(
  app: JupyterFrontEnd,
  id: string,
  name: string,
  trans: TranslationBundle
): Promise<void> {
  const answer = await showDialog({
    title: trans.__('Restart the kernel of %1?', name),
    body: trans.__(
      'What runs there is ended and its variables are lost. The GPU that it still has open is free then.'
    ),
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
  // Not open in this tab: the notebook itself hears of it from the server.
  const kernel = app.serviceManager.kernels.connectTo({ model: { id, name: '' } });
  try {
    await kernel.restart();
  } finally {
    kernel.dispose();
  }
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
