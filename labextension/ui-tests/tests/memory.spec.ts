/** Memory as an amount of its own: a server whose programs take memory through the gate. */
import { execFileSync } from 'child_process';
import { mkdtempSync, rmSync } from 'fs';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { command, expect, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const ROOT = resolve(__dirname, '..', '..', '..');
const DARK = 'JupyterLab Dark';
const GIB = 2 ** 30;

test('memory is chosen beside the slider, by keyboard, and alone', async ({ page }) => {
  test.setTimeout(120_000);
  test.skip(process.getuid?.() !== 0, 'without root memory is not enforced');
  const driver = mkdtempSync(join(tmpdir(), 'jupyter-gpu-driver-'));
  execFileSync(join(ROOT, 'node_plugin/gate/standin/build.sh'), [driver]);
  const server = new JupyterServer({ gpus: 2, env: { LD_LIBRARY_PATH: driver } });
  const panel = new Panel(page, server);
  const memory = panel.root.getByRole('textbox', { name: 'GPU memory, GiB' });
  const requested = async () =>
    ((await server.view()) as unknown as { requested: { milli: number; memory?: number } })
      .requested;
  try {
    await server.start();
    await panel.open();
    await expect(memory).toHaveValue('');
    await expect(memory).toHaveAccessibleDescription('Up to 24 GiB, without a part of the time.');
    expect(await panel.axe()).toEqual([]);

    // The slider's amount first, then memory above its part.
    await panel.slider.focus();
    await page.keyboard.press('ArrowRight');
    await expect(panel.sentence).toHaveText('0.25 of 2 GPUs attached');
    await expect(memory).toHaveAccessibleDescription(
      'Of each share, up to 24 GiB. Empty: its part, 6 GiB.'
    );
    await page.keyboard.press('Tab');
    await expect(memory).toBeFocused();
    await page.keyboard.type('30');
    await expect(panel.root.getByRole('alert')).toContainText('up to 24 GiB');
    expect(await panel.axe()).toEqual([]);
    await panel.shot('memory-too-much');
    await page.keyboard.press('Escape');
    await page.keyboard.type('12');
    await page.keyboard.press('Enter');
    await expect.poll(requested).toMatchObject({ milli: 250, memory: 12 * GIB });
    await expect(panel.sentence).toHaveText('0.25 of 2 GPUs attached');
    await expect(memory).toHaveValue('12');
    await panel.shot('memory');

    // The slider keeps it.
    await panel.slider.focus();
    await page.keyboard.press('ArrowRight');
    await expect(panel.sentence).toHaveText('0.5 of 2 GPUs attached');
    expect(await requested()).toMatchObject({ milli: 500, memory: 12 * GIB });
    await page.reload();
    await expect(memory).toHaveValue('12');
    await command(page, 'apputils:change-theme', { theme: DARK });
    await page.locator(`body[data-jp-theme-name="${DARK}"]`).waitFor({ state: 'attached' });
    expect(await panel.axe()).toEqual([]);

    // Nothing in the field: its part again.
    await memory.fill('');
    await memory.press('Enter');
    await expect.poll(async () => (await requested()).memory).toBeUndefined();

    // Memory alone, and none.
    await panel.slider.focus();
    await page.keyboard.press('Home');
    await expect(panel.sentence).toHaveText('0 of 2 GPUs attached');
    await memory.fill('20');
    await memory.press('Enter');
    await expect(panel.sentence).toHaveText('0.001 of 2 GPUs attached');
    expect(await requested()).toMatchObject({ milli: 1, memory: 20 * GIB });
    await memory.fill('');
    await memory.press('Enter');
    await expect(panel.sentence).toHaveText('0 of 2 GPUs attached');
  } finally {
    await page.close(); // before what it talks to
    await server.dispose();
    rmSync(driver, { recursive: true });
  }
});
