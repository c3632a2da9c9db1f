// What the console's page uses of htm.
declare const htm: {
  bind<H extends (type: any, props: any, ...children: any[]) => any>(h: H): (strings: TemplateStringsArray, ...values: unknown[]) => ReturnType<H>;
};
export default htm;
