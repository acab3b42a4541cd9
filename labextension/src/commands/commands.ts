/** The commands: show the panel, ask for GPUs, give them back. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IRequest } from '../api/request';
import { loadWithRetries } from '../common/retry';
import { IGpuModel } from '../model/tokens';
import type { CurrentNotebook } from '../notebook/notebook';
import { asked, offer } from '../notebook/wants';
import { MILLI_PER_GPU } from '../words/quantity';
import { explain } from '../words/sentence';

/** Ids of the commands. */
export namespace CommandIDs {
  export const showPanel = 'jupyter-gpu:show-panel';
  export const resize = 'jupyter-gpu:resize';
  export const release = 'jupyter-gpu:release';
  export const remember = 'jupyter-gpu:remember-in-notebook';
  export const take = 'jupyter-gpu:take-for-notebook';
  export const desktop = 'jupyter-gpu:notify-on-desktop';
}

/** The description of a command without arguments. */
export const NO_ARGUMENTS = { args: { type: 'object', properties: {} } } as const;

/** Add the commands that change something. */
export function addCommands(
  { commands }: JupyterFrontEnd,
  model: IGpuModel,
  notebook: CurrentNotebook,
  trans: TranslationBundle
): void {
  const online = () => model.connection.state === 'online' && (model.view?.total ?? 0) > 0;
  commands.addCommand(CommandIDs.resize, {
    label: trans.__('Change the Number of GPUs…'),
    caption: trans.__('Ask for another number of GPUs for the notebooks of this server'),
    isEnabled: online,
    describedBy: {
      args: {
        type: 'object',
        properties: {
          gpus: {
            type: 'number',
            minimum: 0,
            description: trans.__('Number of GPUs, such as 2 or 0.5; asked for if it is left out')
          }
        }
      }
    },
    execute: async args => {
      const milli =
        typeof args.gpus === 'number'
          ? Math.round(args.gpus * MILLI_PER_GPU)
          : await ask(model, trans);
      if (milli !== null) {
        await send(model, { milli }, trans);
      }
    }
  });
  commands.addCommand(CommandIDs.release, {
    label: trans.__('Release All GPUs'),
    caption: trans.__('Give back every GPU of this server'),
    isEnabled: online,
    describedBy: NO_ARGUMENTS,
    execute: () => send(model, { milli: 0, forget: true }, trans)
  });
  addForNotebook(commands, model, notebook, trans);
  const changed = () => {
    for (const id of [
      CommandIDs.resize,
      CommandIDs.release,
      CommandIDs.remember,
      CommandIDs.take
    ]) {
      commands.notifyCommandChanged(id);
    }
  };
  model.changed.connect(changed);
  notebook.changed.connect(changed);
}

/** Add the commands for the wants of the notebook in front. */
function addForNotebook(
  commands: JupyterFrontEnd['commands'],
  model: IGpuModel,
  notebook: CurrentNotebook,
  trans: TranslationBundle
): void {
  const offered = () => {
    const { view } = model;
    const wants = notebook.value?.value;
    return view && wants && 'milli' in wants ? offer(wants, view) : null;
  };
  commands.addCommand(CommandIDs.remember, {
    label: trans.__('Remember These GPUs in This Notebook'),
    caption: trans.__(
      'Have the notebook in front say that it wants as many GPUs as this server has'
    ),
    isEnabled: () =>
      (model.view?.amounts.requested ?? 0) > 0 && (notebook.value?.writable ?? false),
    describedBy: NO_ARGUMENTS,
    execute: () => {
      if (model.view) {
        notebook.value?.set(asked(model.view));
      }
    }
  });
  commands.addCommand(CommandIDs.take, {
    label: trans.__('Take the GPUs That This Notebook Wants'),
    caption: trans.__('Ask for as many GPUs as the notebook in front says that it wants'),
    isEnabled: () => model.connection.state === 'online' && offered() !== null,
    describedBy: NO_ARGUMENTS,
    execute: async () => {
      const wanted = offered();
      if (wanted) {
        await send(model, wanted, trans);
      }
    }
  });
}

/** Ask the user; `null`: nothing was chosen. */
async function ask(model: IGpuModel, trans: TranslationBundle): Promise<number | null> {
  const loaded = await loadWithRetries(
    'the question',
    () => import(/* webpackChunkName: "kernels" */ './choose')
  );
  return loaded && loaded.choose(model, trans);
}

async function send(model: IGpuModel, request: IRequest, trans: TranslationBundle): Promise<void> {
  await model.request(request);
  if (model.failure) {
    Notification.error(explain(model.failure.error, trans), { autoClose: false });
  }
}
