import jupyter from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import a11y from 'eslint-plugin-jsx-a11y';
import hooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'coverage', 'ui-tests', '**/*.js', '**/*.mjs'] },
  ...jupyter.configs.recommended.map(config => ({ ...config, plugins: { jupyter } })),
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [
      tseslint.configs.strictTypeChecked,
      a11y.flatConfigs.strict,
      hooks.configs['recommended-latest'],
      prettier
    ],
    languageOptions: { parserOptions: { project: './tsconfig.test.json' } },
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
  { files: ['test/**'], rules: { 'jupyter/no-untranslated-string': 'off' } }
);
