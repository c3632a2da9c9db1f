// What the console's page uses of preact: signatures of our own, for the type check alone.
export interface VNode { readonly type: unknown }
export declare function h(type: unknown, props: unknown, ...children: unknown[]): VNode;
export declare function render(what: unknown, place: Element): void;
export declare abstract class Component<P = any> {
  constructor(props?: P);
  props: P;
  shouldComponentUpdate?(next: P): boolean;
  abstract render(props: P): unknown;
}
