/** The section "This machine": its GPUs, their servers, and the waiting ones. */
import { command, expect, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const THEMES = { light: 'JupyterLab Light', dark: 'JupyterLab Dark' };

test('is closed at first; opened by keyboard it shows all GPUs, their servers and the waiting ones', async ({
  page,
  panel,
  server
}) => {
  test.setTimeout(120_000);
  const neighbour = new JupyterServer({ state: server.state });
  try {
    await neighbour.start();
    const asked: string[] = [];
    page.on('request', request => {
      if (/\/v1\/machine|static\/machine/.test(request.url())) {
        asked.push(request.url());
      }
    });
    await server.request(1.5);
    await neighbour.request(4);
    await panel.open();
    const section = panel.root.locator('.jp-gpu-Machine');
    const heading = section.locator('summary').first();
    await expect(heading).toHaveText('This machine');
    await expect(panel.cards).toHaveCount(2);
    expect(asked, 'nothing is loaded before it is opened').toEqual([]);

    await heading.focus();
    await page.keyboard.press('Enter');
    await expect(section).toContainText('0.5 of 4 GPUs are free, 1 server waits');
    const gpus = section.locator('.jp-gpu-Machine-gpus > li');
    await expect(gpus).toHaveCount(4);
    await expect(gpus.filter({ hasText: 'This serverwhole' })).toHaveCount(1);
    await expect(gpus.filter({ hasText: 'This server½' })).toContainText('Free½');
    const other = `root, ${neighbour.work}`;
    await expect(gpus.filter({ hasText: other })).toHaveCount(2);
    await expect(section.locator('.jp-gpu-Machine-line')).toContainText('waits for 2 more');
    for (const [name, theme] of Object.entries(THEMES)) {
      await command(page, 'apputils:change-theme', { theme });
      await page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
      await section.scrollIntoViewIfNeeded();
      expect(await panel.axe()).toEqual([]);
      await section.screenshot({ path: `screenshots/machine-${name}.png` });
    }
    await page.setViewportSize({ width: 600, height: 1100 });
    await section.screenshot({ path: 'screenshots/machine-narrow.png' });
    const [inner, outer] = await panel.root.evaluate(node => [node.scrollWidth, node.clientWidth]);
    expect(inner).toBeLessThanOrEqual(outer);

    await server.request(0);
    await expect(section).toContainText('0 of 4 GPUs are free, nobody waits');
    await expect(section.locator('.jp-gpu-Machine-line')).toHaveCount(0);

    await heading.focus();
    await page.keyboard.press('Enter');
    await expect(gpus).toHaveCount(0);
    const before = asked.length;
    await page.waitForTimeout(4000);
    expect(asked.length, 'nothing is requested that is not visible').toBe(before);
  } finally {
    await neighbour.dispose();
  }
});

test('is absent if the administrator shows it to nobody', async ({ browser }) => {
  const server = new JupyterServer({ args: ['--GpuExtension.show_machine=nobody'] });
  try {
    await server.start();
    const page = await browser.newPage();
    const panel = new Panel(page, server);
    await panel.open();
    await expect(panel.sentence).toHaveText('0 of 4 GPUs attached');
    await expect(panel.root.locator('.jp-gpu-Machine')).toHaveCount(0);
    await page.close();
  } finally {
    await server.dispose();
  }
});
