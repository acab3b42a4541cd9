/** The plugins. Each needs little, and works without optional services, in JupyterLab and in Notebook 7. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry, Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Restart } from './amount/amount';
import { GpuPopover } from './bars/popover';
import { StatusItem } from './bars/status';
import { ToolbarItem } from './bars/toolbar';
import { addCommands, CommandIDs, NO_ARGUMENTS } from './commands/commands';
import { loadWithRetries } from './common/retry';
import { GpuModel } from './model/model';
import { GpuSettings } from './model/settings';
import { IGpuModel, IGpuSettings } from './model/tokens';
import { CurrentNotebook, NotebookPanel, NotebookWants } from './notebook/notebook';
import { watchWaits } from './notices/watch-waits';
import { GpuPanel } from './panel/panel';
import { lendTranslation } from './widget/translation';

export { IGpuModel, IGpuSettings };

const DOMAIN = 'jupyter_gpu';

const model: JupyterFrontEndPlugin<IGpuModel> = {
  id: 'jupyter-gpu:model',
  description: 'The state of the GPUs of this server.',
  autoStart: true,
  provides: IGpuModel,
  activate: (app: JupyterFrontEnd): IGpuModel => {
    const gpus = new GpuModel(app.serviceManager.serverSettings);
    const followVisibility = () => {
      gpus.visible = document.visibilityState === 'visible';
    };
    document.addEventListener('visibilitychange', followVisibility);
    followVisibility();
    loadWordsOfWorkers(gpus);
    // The network is back: do not wait for the back-off.
    window.addEventListener('online', () => gpus.reconnect());
    return gpus;
  }
};

const settings: JupyterFrontEndPlugin<IGpuSettings> = {
  id: 'jupyter-gpu:settings',
  description: 'Settings of the GPU panel.',
  autoStart: true,
  provides: IGpuSettings,
  optional: [ISettingRegistry],
  activate: (_: JupyterFrontEnd, registry: ISettingRegistry | null): IGpuSettings => {
    const gpuSettings = new GpuSettings();
    registry
      ?.load('jupyter-gpu:plugin')
      .then(stored => gpuSettings.load(stored))
      .catch((reason: unknown) => console.warn('jupyter-gpu: settings could not be read:', reason));
    return gpuSettings;
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:panel',
  description: 'The side panel: slider and cards.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [ITranslator, ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpuModel,
    gpuSettings: IGpuSettings,
    translator: ITranslator | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    lendTranslation(trans);
    const widget = new GpuPanel({
      model: gpus,
      settings: gpuSettings,
      trans,
      notebook: new CurrentNotebook(app.shell),
      restart: restarts(app, trans)
    });
    app.shell.add(widget, 'right', { rank: 900, type: 'GPUs' });
    restorer?.add(widget, 'jupyter-gpu-panel');
    app.commands.addCommand(CommandIDs.showPanel, {
      label: trans.__('Show GPUs'),
      caption: trans.__('Show the panel with the GPUs of this server'),
      describedBy: NO_ARGUMENTS,
      execute: () => {
        app.shell.activateById(widget.id);
        labShell?.expandRight();
      }
    });
    palette?.addItem({ command: CommandIDs.showPanel, category: trans.__('GPUs') });
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:status',
  description: 'The item of the status bar.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpuModel,
    gpuSettings: IGpuSettings,
    statusBar: IStatusBar | null,
    translator: ITranslator | null
  ): void => {
    if (!statusBar) {
      return;
    }
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const item = new StatusItem(gpus, trans, () => {
      void app.commands.execute(CommandIDs.showPanel);
    });
    const activeStateChanged = new Signal<StatusItem, void>(item);
    gpuSettings.changed.connect(() => activeStateChanged.emit());
    statusBar.registerStatusItem('jupyter-gpu:status', {
      item,
      align: 'left',
      rank: 5,
      isActive: () => gpuSettings.showStatusBar,
      activeStateChanged
    });
  }
};

const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:commands',
  description: 'Commands for GPUs.',
  autoStart: true,
  requires: [IGpuModel],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpuModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    addCommands(app, gpus, new CurrentNotebook(app.shell), trans);
    for (const command of [
      CommandIDs.resize,
      CommandIDs.release,
      CommandIDs.remember,
      CommandIDs.take
    ]) {
      palette?.addItem({ command, category: trans.__('GPUs') });
    }
  }
};

const toolbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:toolbar',
  description: 'The item of a notebook.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [IToolbarWidgetRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpuModel,
    gpuSettings: IGpuSettings,
    toolbars: IToolbarWidgetRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const popover = new GpuPopover({
      model: gpus,
      trans,
      restart: restarts(app, trans),
      details: () => void app.commands.execute(CommandIDs.showPanel)
    });
    toolbars?.addFactory(
      'Notebook',
      'jupyter-gpu',
      widget =>
        new ToolbarItem({
          model: gpus,
          settings: gpuSettings,
          trans,
          popover,
          notebook: NotebookWants.ofContent((widget as NotebookPanel).content)
        })
    );
  }
};

const waits: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:waits',
  description: 'Messages after a wait.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpuModel,
    gpuSettings: IGpuSettings,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    watchWaits(app, gpus, gpuSettings, trans);
    palette?.addItem({ command: CommandIDs.desktop, category: trans.__('GPUs') });
  }
};

/** Load the words about workers, lent and parked GPUs and strangers with the first of them: most servers have none. */
function loadWordsOfWorkers(gpus: GpuModel): void {
  const onChange = () => {
    const { view } = gpus;
    if (
      view &&
      (view.workers.length ||
        view.gpus.some(gpu => gpu.guest || gpu.keeps || gpu.parked || gpu.strangers.length))
    ) {
      gpus.changed.disconnect(onChange);
      void loadWithRetries(
        'more words',
        () => import(/* webpackChunkName: "workers" */ './words/remote-sentence')
      ).then(loaded => {
        loaded?.speak();
        gpus.refresh();
      });
    }
  };
  gpus.changed.connect(onChange);
}

/** Restart the kernel that has a GPU open, after a confirmation. */
function restarts(app: JupyterFrontEnd, trans: TranslationBundle): Restart {
  const ask: (...user: Parameters<Restart>) => Promise<void> = async user => {
    const loaded = await loadWithRetries(
      'the question',
      () => import(/* webpackChunkName: "kernels" */ './commands/restart-kernel')
    );
    if (!loaded) {
      throw new Error(trans.__('A part of this page could not be loaded. Reload the page.'));
    }
    await loaded.restartKernel(app, user, trans);
  };
  return user => {
    ask(user).catch((reason: unknown) =>
      Notification.error(trans.__('The kernel was not restarted: %1', String(reason)))
    );
  };
}

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  model,
  settings,
  panel,
  status,
  toolbar,
  commands,
  waits
];
export default plugins;
