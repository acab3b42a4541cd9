import jupyter from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import a11y from 'eslint-plugin-jsx-a11y';
import hooks from 'eslint-plugin-react-hooks';
import { readdirSync, readFileSync } from 'node:fs';
import tseslint from 'typescript-eslint';

/** The rooms: the folders of `src/`, each with those that it imports. All of these stand before it in the file. */
const ROOMS = Object.entries(JSON.parse(readFileSync(new URL('rooms.json', import.meta.url))));

for (const entry of readdirSync(new URL('src', import.meta.url), { withFileTypes: true })) {
  if (entry.isDirectory() && !ROOMS.some(([room]) => room === entry.name)) {
    throw new Error(`src/${entry.name}/ is not in rooms.json`);
  }
}

/** Restricts what a room imports: statically, dynamically, or for types only. */
function restrict([room, { imports }], place) {
  const before = ROOMS.slice(0, place).map(([name]) => name);
  const wrong = imports.find(name => !before.includes(name));
  if (wrong) {
    throw new Error(`rooms.json: ${room} imports ${wrong}, which does not stand before it`);
  }
  const other = `/^\\.\\.\\u002F(?!(${[...imports, '\\.\\.\\u002Fstyle'].join('|')})\\u002F)/`;
  const message = `${room}/ may not import that, see rooms.json`;
  return {
    files: [`src/${room}/**`],
    rules: { 'no-restricted-syntax': ['error', { selector: `[source.value=${other}]`, message }] }
  };
}

export default tseslint.config(
  { ignores: ['lib', 'coverage', 'ui-tests/node_modules', '**/*.js', '**/*.mjs'] },
  ...jupyter.configs.recommended.map(config => ({ ...config, plugins: { jupyter } })),
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [
      tseslint.configs.strictTypeChecked,
      a11y.flatConfigs.strict,
      hooks.configs['recommended-latest'],
      prettier
    ],
    languageOptions: {
      parserOptions: { project: ['./tsconfig.test.json', './ui-tests/tsconfig.json'] }
    },
    rules: {
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I[A-Z]', match: true } }
      ],
      '@typescript-eslint/no-confusing-void-expression': 'off',
      '@typescript-eslint/no-namespace': 'off', // JupyterLab's way to name command ids
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      eqeqeq: 'error',
      'jupyter/prefer-lazy-imports': 'off', // small modules; the one heavy library is loaded with the first chart
      'no-console': ['error', { allow: ['warn'] }]
    }
  },
  ...ROOMS.map(restrict),
  { files: ['test/**', 'ui-tests/**'], rules: { 'jupyter/no-untranslated-string': 'off' } },
  {
    files: ['ui-tests/**'],
    rules: {
      '@typescript-eslint/no-extraneous-class': 'off', // a stand-in for a class of the browser
      'react-hooks/rules-of-hooks': 'off' // a fixture calls `use`
    }
  }
);
