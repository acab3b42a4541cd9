/** The settings, typed, with their defaults if nothing stores them. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';
import { IGpuSettings } from './tokens';

/** Settings that follow `registry` once it is {@link load}ed. */
export class GpuSettings implements IGpuSettings {
  showStatusBar = true;
  showInToolbar = true;
  notify = true;
  notifyOnDesktop = false;
  chartWindow = 120;
  tableInsteadOfCharts = false;
  private stored: ISettingRegistry.ISettings | null = null;
  private readonly _changed = new Signal<this, void>(this);

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Read `stored` now and whenever it changes. */
  load(stored: ISettingRegistry.ISettings): void {
    this.stored = stored;
    const read = () => {
      this.showStatusBar = stored.get('showStatusBar').composite !== false;
      this.showInToolbar = stored.get('showInToolbar').composite !== false;
      this.notify = stored.get('notify').composite !== false;
      this.notifyOnDesktop = stored.get('notifyOnDesktop').composite === true;
      this.tableInsteadOfCharts = stored.get('tableInsteadOfCharts').composite === true;
      const window = Number(stored.get('chartWindow').composite);
      this.chartWindow = window >= 10 && window <= 3600 ? window : 120;
      this._changed.emit();
    };
    stored.changed.connect(read);
    read();
  }

  showTable(table: boolean): void {
    this.tableInsteadOfCharts = table;
    this._changed.emit();
    this.stored?.set('tableInsteadOfCharts', table).catch((reason: unknown) => {
      console.warn('jupyter-gpu: the choice of table or charts was not stored:', reason);
    });
  }

  async useDesktop(use: boolean): Promise<void> {
    this.notifyOnDesktop = use;
    this._changed.emit();
    await this.stored?.set('notifyOnDesktop', use);
  }
}
