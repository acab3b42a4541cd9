import { expect, logIn, test } from './fixtures';

test('an administrator sees all subjects, searches and sorts them', async ({ as }) => {
  const root = await as('root');
  await expect(root.row('ann')).toContainText('3 GPUs');
  await expect(root.row('ann')).toContainText('set for user ann');
  await expect(root.row('ml')).toContainText('2 members');
  await expect(root.row('helms')).toHaveCount(0);
  await root.page.getByRole('button', { name: 'In use' }).click();
  await expect(root.page.getByRole('columnheader', { name: 'In use' })).toHaveAttribute(
    'aria-sort',
    'ascending'
  );
  await root.search('rit');
  await expect(root.row('rita')).toBeVisible();
  await expect(root.row('ann')).toHaveCount(0);
});

test('the page is clean for screen readers in both themes', async ({ as }) => {
  const root = await as('root');
  await root.axeInBothThemes();
});

test('names are text, and no script runs', async ({ as }) => {
  const root = await as('root');
  const name = '<img src=x onerror=document.title=1>';
  await root.search('onerror');
  await expect(root.row(name)).toBeVisible();
  await expect(root.page).toHaveTitle('GPU limits');
});

test('without scripts there is a plain page', async ({ browser }) => {
  const page = await logIn(browser, 'root', { javaScriptEnabled: true });
  const plain = await (
    await browser.newContext({
      javaScriptEnabled: false,
      storageState: await page.context().storageState()
    })
  ).newPage();
  await plain.goto(`${process.env.HUB_ADDRESS}/services/gpu/?search=ann`);
  await expect(plain.getByRole('rowheader', { name: 'ann' })).toBeVisible();
});

test('the theme is that of the hub', async ({ as }) => {
  const root = await as('root');
  const html = root.page.locator('html');
  await expect(html).toHaveAttribute('data-bs-theme', 'light');
  await root.page.getByRole('button', { name: 'Toggle dark mode' }).click();
  await expect(html).toHaveAttribute('data-bs-theme', 'dark');
  await root.page.goto(`${process.env.HUB_ADDRESS}/hub/home`);
  await expect(html).toHaveAttribute('data-bs-theme', 'dark');
});
