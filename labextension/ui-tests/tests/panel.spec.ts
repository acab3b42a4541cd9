/** The idle panel in both themes, wide and narrow, on the screen and for screen readers. */
import { command, expect, listen, palette, test } from './fixtures';

const THEMES = { light: 'JupyterLab Light', dark: 'JupyterLab Dark' };

for (const [name, theme] of Object.entries(THEMES)) {
  test(`axe-core finds nothing, ${name} theme`, async ({ page, panel, server }) => {
    await panel.open();
    await command(page, 'apputils:change-theme', { theme });
    await page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
    expect(await panel.axe()).toEqual([]);
    await server.request(1.5);
    await expect(panel.cards).toHaveCount(2);
    await expect(panel.root.locator('canvas')).toHaveCount(4);
    expect(await panel.axe()).toEqual([]);
    expect(await panel.axe('#jp-main-statusbar .jp-gpu-StatusItem')).toEqual([]);
    await panel.shot(`panel-${name}`);
    await panel.root.getByLabel('Show as table').check();
    await expect(panel.root.locator('canvas')).toHaveCount(0);
    expect(await panel.axe()).toEqual([]);
    await panel.shot(`table-${name}`);
    await panel.root.getByLabel('Show as table').uncheck();
  });
}

test('fits a narrow side bar', async ({ page, panel, server }) => {
  await panel.open();
  await server.request(2);
  await expect(panel.cards).toHaveCount(2);
  await page.evaluate(() => {
    const { jupyterapp } = window as unknown as {
      jupyterapp: { shell: { _hsplitPanel: { setRelativeSizes(sizes: number[]): void } } };
    };
    jupyterapp.shell._hsplitPanel.setRelativeSizes([0.2, 0.7, 0.1]);
  });
  await page.setViewportSize({ width: 900, height: 900 });
  await panel.shot('narrow');
  const [inner, outer] = await panel.root.evaluate(node => [node.scrollWidth, node.clientWidth]);
  expect(inner).toBeLessThanOrEqual(outer);
});

test('shows the state in the server’s words', async ({ panel, server }) => {
  await panel.open();
  for (const gpus of [0, 0.25, 3, 0]) {
    const { sentence } = await server.request(gpus);
    await expect(panel.sentence).toHaveText(sentence);
  }
  await server.request(0.25);
  await expect(panel.cards).toContainText('A quarter, shared');
  await expect(panel.root.getByText(/simulated/i).first()).toBeVisible();
  // The panel shows every note of the server, such as: the GPUs are simulated.
  const { conditions } = (await server.view()) as unknown as { conditions: { message: string }[] };
  expect(conditions.length).toBeGreaterThan(0);
  for (const { message } of conditions) {
    await expect(panel.root.getByText(message)).toBeVisible();
  }
});

test('results are announced politely, once', async ({ page, panel }) => {
  await panel.open();
  const said = await panel.root.locator('[role=status]').elementHandle();
  await page.evaluate(node => {
    const log: string[] = ((window as unknown as { said: string[] }).said = []);
    new MutationObserver(() => log.push(node.textContent!)).observe(node, {
      childList: true,
      characterData: true,
      subtree: true
    });
  }, said);
  await panel.field.fill('2');
  await panel.field.press('Enter');
  await expect(panel.root.locator('[role=status]')).toHaveText('2 of 4 GPUs attached');
  const log = await page.evaluate(() => (window as unknown as { said: string[] }).said);
  expect(log).toEqual(['2 of 4 GPUs attached']);
});

test('the status bar shows the amount, and opens the panel', async ({ panel, server }) => {
  await panel.open();
  await expect(panel.statusItem).toHaveText('GPU 0/4');
  await server.request(0.5);
  await expect(panel.statusItem).toHaveText('GPU 0.5/4');
  await expect(panel.statusItem).toHaveAccessibleName(/0.5 of 4 GPUs attached.*simulated/);
});

test('commands of the palette show, change and release', async ({ page, panel, server }) => {
  await page.goto(server.page('lab?reset'));
  await page.locator('.jp-Launcher').waitFor();
  await palette(page, 'Show GPUs');
  await expect(panel.root).toBeVisible();
  await palette(page, 'Change the Number of GPUs');
  await page.locator('.jp-Dialog select').selectOption('2 GPUs');
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Change' }).click();
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
  await palette(page, 'Release All GPUs');
  await expect(panel.sentence).toHaveText('0 of 4 GPUs attached');
});

test('settings keep the choice of the table, and can hide the item of the status bar', async ({
  page,
  panel,
  server
}) => {
  await server.request(1);
  await panel.open();
  await panel.root.getByLabel('Show as table').check();
  await expect(panel.root.getByRole('table')).toContainText('Whole GPU, exclusive');
  await page.goto(server.page('lab?reset'));
  await panel.statusItem.click();
  await expect(panel.root.getByRole('table')).toBeVisible();
  await panel.root.getByLabel('Show as table').uncheck();
  await expect(panel.root.getByRole('table')).toHaveCount(0);

  const id = encodeURIComponent('jupyter-gpu:plugin');
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{"showStatusBar": false}' });
  await page.goto(server.page('lab?reset'));
  await page.locator('.jp-Launcher').waitFor();
  await expect(panel.statusItem).toBeHidden();
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{}' });
});

test('there is one connection, and no samples while they are not visible', async ({
  page,
  panel,
  server
}) => {
  const heard = listen(page);
  await page.goto(server.page('lab?reset'));
  await panel.statusItem.waitFor();
  await expect.poll(() => heard.sent).toEqual(['{"type":"samples","on":false}']);
  await panel.statusItem.click();
  await expect.poll(() => heard.sent.at(-1)).toBe('{"type":"samples","on":true}');

  const show = (state: string) =>
    page.evaluate(visibility => {
      Object.defineProperty(document, 'visibilityState', { value: visibility, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, state);
  await show('hidden');
  await expect.poll(() => heard.sent.at(-1)).toBe('{"type":"samples","on":false}');
  await show('visible');
  await expect.poll(() => heard.sent.at(-1)).toBe('{"type":"samples","on":true}');
  // Folding the side bar is enough.
  await page.locator('.jp-SideBar [data-id="jupyter-gpu-panel"]').click();
  await expect(panel.root).toBeHidden();
  await expect.poll(() => heard.sent.at(-1)).toBe('{"type":"samples","on":false}');
  expect(heard.opened).toBe(1);
});

test('a reload loses no history', async ({ page, panel, server }) => {
  const heard = listen(page);
  await server.request(1);
  await panel.open();
  const samples = () => heard.received.filter(text => text.includes('"type":"sample"')).length;
  await expect.poll(samples).toBeGreaterThanOrEqual(3);
  heard.received.splice(0);
  await page.reload();
  const history = () => heard.received.find(text => text.includes('"history"'));
  await expect.poll(history).toBeTruthy();
  const { points } = JSON.parse(history()!) as { points: unknown[] };
  expect(points.length).toBeGreaterThanOrEqual(3);
  // The side bar is restored as it was, and the number is there without waiting for a sample.
  await expect(panel.cards.getByText('0 %')).toBeVisible();
});
