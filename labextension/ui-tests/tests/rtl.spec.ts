/** A page whose text runs from right to left. JupyterLab's own parts are not checked. */
import { Locator, Page } from '@playwright/test';
import { command, expect, kernelReady, Panel, test } from './fixtures';
import { JupyterServer } from './server';

/** Some words of the panel in Hebrew; the rest stays English, as in a language pack that is behind. */
const HEBREW = {
  '': { domain: 'jupyter_gpu', language: 'he', plural_forms: 'nplurals=2; plural=(n != 1);' },
  'GPUs for this server': ['מעבדים גרפיים לשרת הזה'],
  '%1 of %2 attached': ['%1 מתוך %2 מחוברים'],
  Utilisation: ['ניצול'],
  Memory: ['זיכרון'],
  'Release all': ['שחרור הכול']
};

/** Text runs from right to left, before the scripts of the page run. */
async function turn(page: Page): Promise<void> {
  await page.addInitScript(() => {
    document.addEventListener('readystatechange', () => {
      document.documentElement.dir = 'rtl';
    });
  });
}

/** Elements that overflow `root` at its sides, or their own box. */
async function overflowing(root: Locator): Promise<string[]> {
  return root.evaluate(node => {
    const outer = node.getBoundingClientRect();
    return [...node.querySelectorAll<HTMLElement>('*')]
      .filter(one => {
        const box = one.getBoundingClientRect();
        const hidden = one.closest('.jp-gpu-Hidden, .jp-gpu-Ticks') !== null;
        const out = box.left < outer.left - 1 || box.right > outer.right + 1;
        return (
          box.width > 0 &&
          !hidden &&
          (out || one.scrollWidth > one.clientWidth + 1) &&
          !isInline(one)
        );
      })
      .map(one => one.outerHTML.slice(0, 120));
    function isInline(one: HTMLElement) {
      return getComputedStyle(one).display === 'inline';
    }
  });
}

/** Horizontal middle of `found`. */
async function middle(found: Locator): Promise<number> {
  const box = (await found.boundingBox())!;
  return box.x + box.width / 2;
}

/** Position of a character of the text of `found`. */
function painted(found: Locator, text: string): Promise<number> {
  return found.evaluate((node, part) => {
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    for (let one = walker.nextNode(); one; one = walker.nextNode()) {
      const at = one.textContent!.indexOf(part);
      if (at >= 0) {
        const range = document.createRange();
        range.setStart(one, at);
        range.setEnd(one, at + part.length);
        return range.getBoundingClientRect().left;
      }
    }
    throw new Error(`no ${part} in ${node.textContent}`);
  }, text);
}

test('the panel is mirrored, nothing overflows, and no number is split', async ({
  page,
  panel,
  server
}) => {
  await turn(page);
  await server.request(2);
  await panel.open();
  await expect(panel.cards).toHaveCount(2);
  await expect(panel.root.locator('canvas')).toHaveCount(4);
  // The slider begins at the right, and its labels stand below their places.
  const ticks = panel.root.locator('.jp-gpu-Ticks span');
  expect(await middle(ticks.first())).toBeGreaterThan(await middle(ticks.last()));
  const box = (await panel.slider.boundingBox())!;
  expect(Math.abs((await middle(ticks.first())) - (box.x + box.width - 8))).toBeLessThan(2);
  expect(Math.abs((await middle(ticks.last())) - (box.x + 8))).toBeLessThan(2);
  // Untranslated English reads from left to right.
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
  expect(await painted(panel.sentence, '2')).toBeLessThan(
    await painted(panel.sentence, 'attached')
  );
  const load = panel.cards.first().locator('.jp-gpu-Card-load').first();
  const value = load.locator('span').last();
  expect(await middle(value)).toBeLessThan(await middle(load.locator('span').first()));
  const digits = (await value.textContent())!.split(' ');
  expect(await painted(value, digits[0])).toBeLessThan(await painted(value, '%'));
  const brief = panel.cards.first().locator('.jp-gpu-Details summary span').last();
  await expect(brief).toHaveText(/^\d+ °C · \d+ W$/);
  expect(await painted(brief, '°')).toBeLessThan(await painted(brief, 'W'));
  // Charts are not: now is at the right edge.
  await expect(panel.root.locator('.jp-gpu-Chart').first()).toHaveCSS('direction', 'ltr');
  expect(await overflowing(panel.root)).toEqual([]);
  expect(await panel.axe()).toEqual([]);
  await panel.shot('rtl');
  await panel.root.getByLabel('Show as table').check();
  await expect(panel.root.getByRole('table')).toHaveCount(1);
  await panel.shot('rtl-table');
  await panel.root.getByLabel('Show as table').uncheck();
});

test('keys and mouse follow the mirrored thumb: left is more', async ({ page, panel }) => {
  await turn(page);
  await panel.open();
  await panel.slider.focus();
  const thumb = async () => Number(await panel.slider.inputValue());
  for (const [key, place] of [
    ['ArrowLeft', 1],
    ['ArrowLeft', 2],
    ['ArrowRight', 1],
    ['ArrowUp', 2],
    ['ArrowDown', 1],
    ['End', 6],
    ['Home', 0]
  ] as const) {
    await page.keyboard.press(key);
    expect(await thumb(), key).toBe(place);
  }
  // The filled part of the track is where the GPUs are: at the right.
  const box = (await panel.slider.boundingBox())!;
  await page.mouse.click(box.x + 9, box.y + box.height / 2);
  await expect(panel.sentence).toHaveText('4 of 4 GPUs attached');
  await page.mouse.click(box.x + 8 + ((box.width - 16) * 3) / 6, box.y + box.height / 2);
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
  await panel.shot('rtl-slider');
});

/** Have the page of `server` in Hebrew during `work`. */
async function inHebrew(page: Page, server: JupyterServer, work: () => Promise<void>) {
  await turn(page);
  await page.route(/\/lab\/api\/translations\/\w/, route =>
    route.fulfill({ json: { data: { jupyter_gpu: HEBREW }, message: '' } })
  );
  const language = `lab/api/settings/${encodeURIComponent('@jupyterlab/translation-extension:plugin')}`;
  await server.fetch(language, 'PUT', { raw: '{"locale": "he_IL"}' });
  try {
    await work();
  } finally {
    await server.fetch(language, 'PUT', { raw: '{}' });
  }
}

test('in Hebrew, with a popover beside the item of the toolbar', async ({ page, panel, server }) =>
  inHebrew(page, server, async () => {
    server.notebook('analysis.ipynb', ['1']);
    await server.request(1);
    await page.goto(server.page('lab/tree/analysis.ipynb?reset'));
    await kernelReady(page);
    const item = page.locator('.jp-NotebookPanel-toolbar .jp-gpu-ToolbarItem button');
    await expect(item).toHaveText('GPU 1/4');
    expect(await painted(item, 'GPU')).toBeLessThan(await painted(item, '1/4'));
    await item.click();
    const popover = page.getByRole('dialog', { name: 'GPUs' });
    const sentence = popover.locator('.jp-gpu-Sentence');
    await expect(sentence).toHaveText('1 מתוך 4 GPUs מחוברים');
    expect(await painted(sentence, '1')).toBeGreaterThan(await painted(sentence, 'מחוברים'));
    const box = (await popover.boundingBox())!;
    const anchor = (await item.boundingBox())!;
    expect(Math.abs(box.x - Math.max(8, Math.min(anchor.x, 1280 - box.width - 8)))).toBeLessThan(2);
    expect(await overflowing(popover)).toEqual([]);
    expect(await panel.axe('#jupyter-gpu-popover')).toEqual([]);
    await panel.shot('rtl-hebrew', true);
    await new Panel(page, server).statusItem.click();
    await expect(panel.cards).toHaveCount(1);
    expect(await overflowing(panel.root)).toEqual([]);
    await panel.shot('rtl-hebrew-panel');
  }));

test('the slider in a cell, in Hebrew', async ({ page, panel, server }) =>
  inHebrew(page, server, async () => {
    server.notebook('slider.ipynb', ['from jupyter_gpu import gpu\ngpu']);
    await server.request(1);
    await page.goto(server.page('lab/tree/slider.ipynb?reset'));
    await kernelReady(page);
    await command(page, 'notebook:run-all-cells');
    const cell = page.locator('.jp-OutputArea .jp-gpu-InCell');
    const slider = cell.getByRole('slider', { name: HEBREW['GPUs for this server'][0] });
    await expect(slider).toBeEnabled();
    const sentence = cell.getByRole('status');
    const amount = cell.locator('.jp-gpu-InCell-amount');
    await expect(sentence).toHaveText('1 מתוך 4 GPUs מחוברים (simulated)');
    expect(await painted(sentence, '1')).toBeGreaterThan(await painted(sentence, 'מחוברים'));
    // Untranslated English reads from left to right.
    await expect(amount).toHaveText('1 of 4 GPUs');
    expect(await painted(amount, '1')).toBeLessThan(await painted(amount, 'GPUs'));
    await slider.focus();
    await page.keyboard.press('ArrowLeft');
    await expect(sentence).toHaveText('2 מתוך 4 GPUs מחוברים (simulated)');
    expect(await overflowing(cell)).toEqual([]);
    expect(await panel.axe('.jp-gpu-InCell')).toEqual([]);
    await panel.shot('rtl-cell', true);
  }));
