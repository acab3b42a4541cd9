/** Notices when a wait is over: one for all tabs, and none for visible changes. */
import { rmSync, writeFileSync } from 'fs';
import { join } from 'path';
import { Page } from '@playwright/test';
import { command, expect, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const toasts = (page: Page) => page.locator('.Toastify__toast');

let other: JupyterServer;

test.beforeEach(async ({ server }) => {
  other = await new JupyterServer({ state: server.state }).start();
});

test.afterEach(async ({ context, server }) => {
  await server.reset();
  for (const page of context.pages()) {
    await page.goto('about:blank');
  }
  await other.dispose();
});

/** JupyterLab with the panel closed; the browser's own messages are recorded instead of shown. */
async function lab(page: Page, server: JupyterServer): Promise<void> {
  await page.addInitScript(() => {
    const shown: string[] = [];
    const fake = class {
      static permission = 'default';
      static asked = 0;
      static shown = shown;
      static requestPermission() {
        fake.asked += 1;
        fake.permission = 'granted';
        return Promise.resolve('granted');
      }
      constructor(title: string, options: { body: string }) {
        shown.push(`${title}: ${options.body}`);
      }
    };
    Object.assign(window, { Notification: fake });
  });
  await page.goto(server.page('lab?reset'));
  await page.locator('.jp-Launcher').waitFor();
  const item = page.locator('.jp-gpu-StatusItem button');
  await expect(item).toHaveText('GPU 0/4');
}

interface IFake {
  readonly permission: string;
  readonly asked: number;
  readonly shown: string[];
}

const desktop = (page: Page) =>
  page.evaluate(() => {
    const { permission, asked, shown } = (window as unknown as { Notification: IFake })
      .Notification;
    return { permission, asked, shown };
  });

async function hide(page: Page, hidden: boolean): Promise<void> {
  await page.evaluate(
    value => {
      Object.defineProperty(document, 'visibilityState', { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    },
    hidden ? 'hidden' : 'visible'
  );
}

/** Ask for all four while the other server has three, and have it give them back after `seconds`. */
async function wait(server: JupyterServer, seconds: number): Promise<void> {
  await other.request(3);
  await server.request(4);
  await server.see('a wait', view => view.phase === 'Waiting');
  await new Promise(done => setTimeout(done, seconds * 1000));
  await other.request(0);
  await server.see('four GPUs', view => view.amounts.attached === 4000);
}

test('a wait causes one notice, in one of the tabs, which opens the panel', async ({
  page,
  context,
  server
}) => {
  await server.reset();
  const second = await context.newPage();
  await lab(page, server);
  await lab(second, server);
  await wait(server, 4);
  const both = async () => (await toasts(page).count()) + (await toasts(second).count());
  await expect.poll(both).toBe(1);
  const shown = (await toasts(page).count()) ? page : second;
  await expect(toasts(shown)).toContainText(
    'The GPUs that you waited for are here: 4 of 4 GPUs attached'
  );
  await shown.bringToFront();
  await new Panel(shown, server).shot('news', true);
  expect(await new Panel(shown, server).axe('.Toastify__toast')).toEqual([]);
  await toasts(shown).getByRole('button', { name: 'Open GPUs' }).click();
  await expect(shown.locator('#jupyter-gpu-panel')).toBeVisible();
  await expect.poll(both).toBe(0);
  expect((await desktop(page)).asked + (await desktop(second)).asked).toBe(0);
});

test('a part and the rest cause notices; a short or visible wait, or the setting, prevents them', async ({
  page,
  panel,
  server
}) => {
  await lab(page, server);
  await other.request(3);
  await server.request(3);
  await new Promise(done => setTimeout(done, 3500));
  await other.request(2);
  await expect(toasts(page)).toContainText(
    'Some of the GPUs that you wait for are here: 2 of 3: one more when it is free'
  );
  await other.request(0);
  await expect(toasts(page).getByText('3 of 4 GPUs attached')).toBeVisible();
  await command(page, 'apputils:dismiss-notification');
  await page.reload();
  await expect(panel.statusItem).toHaveText('GPU 3/4');

  await server.request(0);
  await wait(server, 0.5);
  await server.request(0);
  await panel.statusItem.click();
  await expect(panel.slider).toBeVisible();
  await wait(server, 4);
  await expect(panel.sentence).toHaveText('4 of 4 GPUs attached');
  await server.request(0);
  await panel.statusItem.click();
  const id = encodeURIComponent('jupyter-gpu:plugin');
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{"notify": false}' });
  await page.goto(server.page('lab?reset'));
  await page.locator('.jp-Launcher').waitFor();
  await expect(panel.statusItem).toHaveText('GPU 0/4');
  await wait(server, 4);
  await expect(panel.statusItem).toHaveText('GPU 4/4');
  await page.waitForTimeout(1500); // a message would be there by now
  await expect(toasts(page)).toHaveCount(0);
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{}' });
});

test('desktop notices need a hidden page, and permission is asked only by a command', async ({
  page,
  panel,
  server
}) => {
  await lab(page, server);
  await command(page, 'jupyter-gpu:notify-on-desktop');
  await expect.poll(async () => (await desktop(page)).permission).toBe('granted');
  await hide(page, true);
  await wait(server, 4);
  const text = 'The GPUs that you waited for are here: 4 of 4 GPUs attached';
  await expect.poll(async () => (await desktop(page)).shown).toEqual([`GPUs: ${text}`]);
  await expect(toasts(page)).toContainText(text); // and stays until the tab is visible

  // A failure causes a notice at once.
  const { gpus } = await server.view();
  const sick = join(server.state, 'simulated', 'health', gpus[1].uuid);
  writeFileSync(sick, 'fell off the bus');
  await expect
    .poll(async () => (await desktop(page)).shown.at(-1))
    .toContain('GPU 1 stopped working');
  await hide(page, false);
  await expect(toasts(page).getByText('GPU 1 stopped working')).toBeVisible();
  await panel.shot('news-lost', true);
  expect((await desktop(page)).asked).toBe(1);
  rmSync(sick);
  const id = encodeURIComponent('jupyter-gpu:plugin');
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{}' });
});
